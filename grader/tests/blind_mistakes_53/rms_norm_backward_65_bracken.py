# labs/lab4_production_slice/rms_norm_backward.py | right | Nothing is wrong. Unusual: two-dimensional tiles of several short rows in dx_kernel, sums by lanes joined by one `tl.reduce` of two tensors with an own combine function, groups of the weight's gradient as contiguous runs of rows (the last may be empty and store zeros), blocks of at most 8192 columns.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator.

dx: a program has a tile of several short rows, or one long row, block by block. Every lane adds up its own
columns, and the lanes are joined once for each row, both sums in one reduction.
"""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import column_sums, load, on, store
from torch.library import triton_op

CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]
LANES = 2048  # of a tile of short rows
WIDEST_TILE = 8192  # columns of a block
GROUPS = 48  # of rows at most, each with its own sums
TALL, WIDE = tl.constexpr(16), tl.constexpr(128)  # the tile of weight_gradient_kernel


@triton.jit
def add_pairs(a, b, more_a, more_b):
    """Combine two pairs of sums."""
    return a + more_a, b + more_b


@triton.jit
def tile_of(ptr, stride, rows, cols, inside):
    """Load a tile in fp32, 0 outside of the matrix; rows is a column of int64, cols a row."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight; program i computes ROWS rows.

    n is the normalised row, x * rstd. rstd of row i goes to element i of an fp32 vector.
    """
    row = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    rows = row[:, None]
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    products = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = (start + lanes)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tile_of(x_ptr, stride_x, rows, cols, inside)
        g = tile_of(dy_ptr, stride_dy, rows, cols, inside) * load(weight_ptr, cols, N_COLS)
        squares += x * x
        products += g * x
    sum_xx, sum_gx = tl.reduce((squares, products), 1, add_pairs)
    rstd = tl.rsqrt(sum_xx / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd, mask=row < n_rows)
    mean_gn = (rstd * sum_gx / N_COLS)[:, None]
    rstd = rstd[:, None]
    for start in range(0, N_COLS, BLOCK):
        cols = (start + lanes)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        n = tile_of(x_ptr, stride_x, rows, cols, inside) * rstd
        g = tile_of(dy_ptr, stride_dy, rows, cols, inside) * load(weight_ptr, cols, N_COLS)
        dx = rstd * (g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds WIDE columns of group k.

    A group is a run of whole tiles of TALL rows; the last groups may have fewer, or none. The sums of group k
    go to row k of sums, (groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    length = tl.cdiv(tl.cdiv(n_rows, TALL), tl.num_programs(axis=1)) * TALL
    first = group * length
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(first, tl.minimum(first + length, n_rows), TALL):
        rows = (start + tl.arange(0, TALL)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)[None, :]
        dy = tile_of(dy_ptr, stride_dy, rows, cols[None, :], inside)
        n = tile_of(x_ptr, stride_x, rows, cols[None, :], inside) * load(rstd_ptr, rows, n_rows)
        dweight += dy * n
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    block = min(triton.next_power_of_2(n_cols), WIDEST_TILE)
    rows = max(1, LANES // block)
    on(dx_kernel, x)[(triton.cdiv(n_rows, rows),)](
        dy, x, weight, dx, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, ROWS=rows, BLOCK=block,
    )
    groups = min(GROUPS, triton.cdiv(n_rows, TALL))
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, WIDE), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator that torch.compile can look into."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
