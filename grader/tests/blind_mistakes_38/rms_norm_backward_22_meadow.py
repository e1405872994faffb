# labs/lab4_production_slice/rms_norm_backward.py | corner | rms_norm_backward, `n_rows // groups`: rounded down, so the last n_rows % groups rows belong to no group and are missing in dweight; shows only where n_rows is no multiple of the number of groups (min(32, cdiv(n_rows, 16))), so never with 16 rows or fewer, but with 37, 301, 600 or 1000; dx is right. It should be triton.cdiv(n_rows, groups), with the end of the last groups cut at n_rows.
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
def row_of(dy_row, x_row, weight_ptr, cols, n_cols):
    """g = dy * weight and x at these columns."""
    return load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols), load(x_row, cols, n_cols)


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
    """dx of one row; rstd of the row is kept for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        g, x = row_of(dy_row, x_row, weight_ptr, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = sum_gx * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g, x = row_of(dy_row, x_row, weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - x * rstd * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_cols, per_group, stride_dy, stride_x):
    """Sums of dy * n over per_group neighbouring rows; program (i, k) has COLS columns of group k."""
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    end = (group + 1) * per_group
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * per_group, end, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        inside = (rows < end) & (cols < n_cols)[None, :]
        row = rows.to(tl.int64)
        dy = tl.load(dy_ptr + row * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=rows < end, other=0.0)
        total += dy * (x * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(total, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)

    strides = dy.stride(0), x.stride(0)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, rstd, sums, n_cols, n_rows // groups, *strides
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
