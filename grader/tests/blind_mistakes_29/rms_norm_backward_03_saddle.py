# labs/lab4_production_slice/rms_norm_backward.py | corner | weight_gradient_kernel adds up only one tile of ROWS = 16 rows for each group (`rows = group * ROWS + tl.arange(0, ROWS)`, no loop), and there are at most 32 groups: with more than 512 rows (600, 1000, ...) the rows from 512 on are missing in dweight. dx is right. It should go on in steps of groups * ROWS below n_rows.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


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
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight; program i computes row i.

    n is the normalised row, x * rstd. rstd of row i goes to element i of an fp32 vector.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    cols = tl.arange(0, BLOCK)
    for _ in range(0, N_COLS, BLOCK):
        x = load(x_row, cols, N_COLS)
        gx = x * load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(gx, axis=0)
        cols += BLOCK
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    dx_row = dx_ptr + row * stride_dx
    mean_gn = rstd * (sum_gx / N_COLS)
    cols = tl.arange(0, BLOCK)
    for _ in range(0, N_COLS, BLOCK):
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_gn * n))
        cols += BLOCK


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The sums of group k go to row k of sums, (groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    rows = group * ROWS + tl.arange(0, ROWS)
    tile = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    start = rows[:, None].to(tl.int64)
    dy = tl.load(dy_ptr + start * stride_dy + cols[None, :], mask=tile, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + start * stride_x + cols[None, :], mask=tile, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
    dweight = dy * x * rstd[:, None]
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if dweight is None:
        dweight = torch.empty((n_cols,), device=x.device, dtype=weight.dtype)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    stride_dy, stride_x = dy.stride(0), x.stride(0)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, stride_dy, stride_x, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    grid = triton.cdiv(n_cols, COLS), sums.shape[0]
    on(weight_gradient_kernel, x)[grid](dy, x, rstd, sums, n_rows, n_cols, stride_dy, stride_x)
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        gradients = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return gradients[0], gradients[1], None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
