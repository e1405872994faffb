# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | dx = rstd * (g - n * (sum_gx / N_COLS)): the sum is over g * x, so the mean lacks a factor rstd; must be n * rstd * sum_gx / N_COLS. Shows in dx in nearly every call, unless rstd of the row is about 1; dweight is right.
"""RMSNorm backwards; the sums are kept as vectors and reduced behind the loop."""

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
    """A block of x and of g = dy * weight."""
    x = load(x_row, cols, N_COLS)
    return x, load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    xx = tl.zeros((BLOCK,), tl.float32)
    gx = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, start + lanes, N_COLS)
        xx += x * x
        gx += g * x
    squares, sum_gx = tl.sum(xx, axis=0), tl.sum(gx, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean = sum_gx / N_COLS
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, start + lanes, N_COLS)
        n = x * rstd
        store(dx_row, start + lanes, N_COLS, rstd * (g - n * mean))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    step = tl.num_programs(axis=1) * ROWS
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    tile = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, step):
        rows = first + tl.arange(0, ROWS)
        far = rows.to(tl.int64)[:, None]
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        n = tl.load(x_ptr + far * stride_x + cols[None, :], mask=mask, other=0.0).to(tl.float32) * rstd[:, None]
        tile += n * tl.load(dy_ptr + far * stride_dy + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(tile, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """dx and dweight."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty(n_rows, device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    strides = (dy.stride(0), x.stride(0))
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, rstd, sums, n_rows, n_cols, *strides
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
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        return (*backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None)


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
