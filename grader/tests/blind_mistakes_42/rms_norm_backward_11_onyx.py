# labs/lab4_production_slice/rms_norm_backward.py | corner | In `weight_gradient_kernel`, a group has consecutive rows first to last - 1, but the mask says `rows < n_rows` (in `inside` and in the load of rstd) where it should be `rows < last`: the last tile of a group also adds rows of the next group. dweight is wrong where there is more than one group and cdiv(n_rows, groups) is no multiple of 16 (37 or 600 rows); right for up to 16 rows, and for 301 or 1000 rows. dx is right.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # parts of the rows at most
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # tile of weight_gradient_kernel


@triton.jit
def add_pairs(a, b, c, d):
    """The sum of two pairs, for tl.reduce."""
    return a + c, b + d


@triton.jit
def weighted(dy_row, weight_ptr, cols, n_cols):
    """Return g = dy * weight at these columns, 0 past the end of the row."""
    return load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * g - x * rstd^3 * sum(g * x) / N_COLS, where g = dy * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, x_row, dx_row = dy_ptr + row * stride_dy, x_ptr + row * stride_x, dx_ptr + row * stride_dx
    squares, sum_gx = 0.0, 0.0
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        more = tl.reduce((x * x, weighted(dy_row, weight_ptr, cols, N_COLS) * x), 0, add_pairs)
        squares += more[0]
        sum_gx += more[1]
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    along = rstd * (sum_gx / N_COLS)  # the mean of g * n
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        g = weighted(dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - n * along))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n over a group of rows; program (i, k) adds COLS columns of group k.

    Each group has rows that follow one another, so that its part of x and dy is one piece of memory.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    height = tl.cdiv(n_rows, groups)
    first = group * height
    last = tl.minimum(first + height, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (x * rstd)
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
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
