# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | `dx_kernel`, function `rms_norm_backward`: `products += tl.sum(dy * x, axis=1)` and `dx = factor * weight * (dy - n * mean_of_products)` take the weight out of the bracket, though it differs from column to column; it should be the sum of dy * weight * x, and `factor * (dy * weight - n * mean_of_products)`. dx is wrong in all cases with more than one column (dweight is right).
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads
ELEMENTS = 2048  # of a tile of short rows


@triton.jit
def tile_of(ptr, rows, cols, inside, stride):
    """A tile in fp32, 0 where `inside` is false."""
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
    TALL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of TALL rows, which a program takes side by side, BLOCK columns at a time.

    rstd of row i goes to element i of an fp32 vector.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((TALL,), dtype=tl.float32)
    products = tl.zeros((TALL,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows)[:, None] & (cols < N_COLS)[None, :]
        x = tile_of(x_ptr, rows, cols, inside, stride_x)
        dy = tile_of(dy_ptr, rows, cols, inside, stride_dy)
        squares += tl.sum(x * x, axis=1)
        products += tl.sum(dy * x, axis=1)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)

    factor = rstd[:, None]
    mean_of_products = (products / N_COLS)[:, None] * factor
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows)[:, None] & (cols < N_COLS)[None, :]
        n = tile_of(x_ptr, rows, cols, inside, stride_x) * factor
        dy = tile_of(dy_ptr, rows, cols, inside, stride_dy)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)[None, :]
        dx = factor * weight * (dy - n * mean_of_products)
        tl.store(
            dx_ptr + rows[:, None] * stride_dx + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside
        )


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dy = tile_of(dy_ptr, rows, cols, inside, stride_dy)
        dweight += dy * tile_of(x_ptr, rows, cols, inside, stride_x) * rstd[:, None]
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    block = block_of(n_cols)
    tall = min(16, max(1, ELEMENTS // block))
    on(dx_kernel, x)[(triton.cdiv(n_rows, tall),)](
        dy, x, weight, dx, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, TALL=tall, BLOCK=block,
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
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
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
