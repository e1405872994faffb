# labs/lab4_production_slice/rms_norm_backward.py | error | rms_norm_backward calls `column_sums(sums[0], dweight)` as for LayerNorm, but here sums is one matrix, (groups, n_cols), so sums[0] has one dimension and column_sums in rows.py fails in `n_rows, n_cols = terms.shape` (ValueError: not enough values to unpack) in every call; it should be `column_sums(sums, dweight)`.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """A block of x, and of dy * weight."""
    x = load(x_row, cols, N_COLS)
    dy = load(dy_row, cols, N_COLS)
    weight = load(weight_ptr, cols, N_COLS)
    return x, dy * weight


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
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    squares = 0.0
    sum_gx = 0.0
    for block in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, block + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)

    slope = sum_gx * rstd / N_COLS
    for block in range(0, N_COLS, BLOCK):
        cols = block + tl.arange(0, BLOCK)
        x, g = x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS)
        n = x * rstd
        store(dx_row, cols, N_COLS, (g - n * slope) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Row k of sums, (groups, n_cols) fp32, is the sum of dy * n over the rows of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    in_cols = (cols < n_cols)[None, :]

    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for top in range(group * ROWS, n_rows, groups * ROWS):
        rows = (top + tl.arange(0, ROWS)).to(tl.int64)
        in_rows = rows < n_rows
        rstd = tl.load(rstd_ptr + rows, mask=in_rows, other=0.0)
        mask = in_rows[:, None] & in_cols
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=mask, other=0.0)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=mask, other=0.0)
        dweight += dy.to(tl.float32) * x.to(tl.float32) * rstd[:, None]
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = x.new_empty(x.shape) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)

    by_rows = on(dx_kernel, x)[(n_rows,)]
    by_rows(
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    by_columns = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    by_columns(dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    column_sums(sums[0], dweight)
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
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
