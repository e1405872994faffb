# labs/lab4_production_slice/rms_norm_backward.py | corner | RMSNorm.backward copies dy only `if dy.stride(0) < dy.shape[1]`, so it looks at the distance of rows and not at that of columns: a dy that is every second column of a wider matrix has stride(0) >= n_cols and stride(1) = 2, is not copied, and the kernels, which take contiguous columns, read the wrong elements. Shows only in rms_norm (dx and dweight) for such a dy; contiguous, padded, expanded and transposed ones are right. Should be `dy.contiguous()` always, or where dy.stride(1) is not 1.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
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
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)

    squares = 0.0
    sum_gx = 0.0
    for begin in range(0, N_COLS, BLOCK):
        x = load(x_row, begin + lane, N_COLS)
        gx = load(dy_row, begin + lane, N_COLS) * load(weight_ptr, begin + lane, N_COLS) * x
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(gx, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)

    mean_gn = rstd * sum_gx / N_COLS
    for begin in range(0, N_COLS, BLOCK):
        g = load(dy_row, begin + lane, N_COLS) * load(weight_ptr, begin + lane, N_COLS)
        n = rstd * load(x_row, begin + lane, N_COLS)
        store(dx_ptr, begin + lane, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    column_exists = (cols < n_cols)[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for begin in range(group * ROWS, n_rows, groups * ROWS):
        rows = begin + tl.arange(0, ROWS).to(tl.int64)
        row_exists = rows < n_rows
        rstd = tl.load(rstd_ptr + rows, mask=row_exists, other=0.0)
        mask = row_exists[:, None] & column_exists
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=mask, other=0.0)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=mask, other=0.0)
        dweight += dy.to(tl.float32) * x.to(tl.float32) * rstd[:, None]
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        rstd,
        stride_dy=dy.stride(0),
        stride_x=x.stride(0),
        stride_dx=dx.stride(0),
        eps=eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.size(0))](
        dy, x, rstd, sums, n_rows, n_cols, stride_dy=dy.stride(0), stride_x=x.stride(0)
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        if dy.stride(0) < dy.shape[1]:
            dy = dy.contiguous()
        dx, dweight = backward_op(dy, x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
