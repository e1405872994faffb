# labs/lab4_production_slice/rms_norm_backward.py | right | right
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 24
TALL, WIDE = tl.constexpr(8), tl.constexpr(256)


@triton.jit
def x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """x and g = dy * weight of some columns, 0 past the end of the row."""
    g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    return load(x_row, cols, N_COLS), g


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
    """One row of dx: forwards through the row for the sums, backwards for the result."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    mean_xx = 0.0
    mean_gx = 0.0
    for k in range(BLOCKS):
        x, g = x_and_g(x_row, dy_row, weight_ptr, k * BLOCK + lanes, N_COLS)
        mean_xx += tl.sum(x * x, axis=0) / N_COLS
        mean_gx += tl.sum(g * x, axis=0) / N_COLS
    rstd = tl.rsqrt(mean_xx + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = mean_gx * rstd

    for k in range(BLOCKS):
        cols = (BLOCKS - 1 - k) * BLOCK + lanes
        x, g = x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - x * rstd * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n over the tiles k, k + groups, k + 2 * groups and so on, for WIDE columns."""
    k = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for top in range(k * TALL, n_rows, groups * TALL):
        rows = (top + tl.arange(0, TALL)).to(tl.int64)
        exists = rows < n_rows
        inside = exists[:, None] & (cols < n_cols)[None, :]
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)[:, None]
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0)
        total += dy.to(tl.float32) * (x.to(tl.float32) * rstd)
    store(sums_ptr + k * n_cols, cols, n_cols, tl.sum(total, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    groups = min(GROUPS, triton.cdiv(n_rows, 8))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 256), groups)](
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
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        wants_dx, wants_dweight = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        return dx if wants_dx else None, dweight if wants_dweight else None, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
