# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | In `square_kernel`, `n = x.to(tl.float32) * rstd` should be `rstd[:, None]`: rstd has one number for each row of the 64 x 64 tile, and as the tile is square it is broadcast along the columns without an error. dweight is wrong in nearly all cases, 0 in most columns where there are few rows; dx is right.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op

SIDE = tl.constexpr(64)  # of the square tiles that are summed over rows
SPLITS = 64


@triton.jit
def three(x_row, dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """Return x, dy and g = dy * weight at `cols` in fp32, and 0 past the end."""
    inside = cols < N_COLS
    x = tl.load(x_row + cols, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=inside, other=0.0).to(tl.float32)
    return x, dy, dy * weight


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
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
    """dx = rstd * (g - n * mean(g * n)) of row i, and its rstd."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    squares = 0.0
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        x, dy, g = three(x_row, dy_row, weight_ptr, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
        products += tl.sum(x * g, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = products * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x, dy, g = three(x_row, dy_row, weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - x * rstd * mean_gn))


@triton.jit
def square_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Row k of sums is the sum of dy * n over every splits-th square of rows, from the k-th one on.

    A program has the columns of one square, and goes down from square to square.
    """
    split = tl.program_id(axis=1)
    splits = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * SIDE + tl.arange(0, SIDE)
    exists = cols < n_cols
    dweight = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for start in range(split * SIDE, n_rows, splits * SIDE):
        rows = (start + tl.arange(0, SIDE)).to(tl.int64)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        inside = (rows < n_rows)[:, None] & exists[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0)
        n = x.to(tl.float32) * rstd
        dweight += dy.to(tl.float32) * n
    store(sums_ptr + split * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    splits = min(SPLITS, triton.cdiv(n_rows, 64))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((splits, n_cols), device=x.device, dtype=torch.float32)
    on(row_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(square_kernel, x)[(triton.cdiv(n_cols, 64), splits)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), num_warps=8
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
