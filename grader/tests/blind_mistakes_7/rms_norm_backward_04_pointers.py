# labs/lab4_production_slice/rms_norm_backward.py | honest | Right: one coefficient for each row in dx, and running pointers over the rows with smaller tiles.
"""Gradients of RMSNorm: dx = rstd * g - c * x with one coefficient c for each row; weights by running pointers."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 24
ROWS, COLS = tl.constexpr(8), tl.constexpr(64)


@triton.jit
def loaded(dy_row, x_row, weight_ptr, cols, N_COLS: tl.constexpr):
    x = load(x_row, cols, N_COLS)
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS), x


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    lanes = tl.arange(0, BLOCK)
    xx = tl.zeros((BLOCK,), tl.float32)
    gx = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        g, x = loaded(dy_ptr, x_ptr, weight_ptr, start + lanes, N_COLS)
        xx += x * x
        gx += g * x
    rstd = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    scaled = rstd * (tl.sum(gx, axis=0) / N_COLS) * rstd
    for start in range(0, N_COLS, BLOCK):
        g, x = loaded(dy_ptr, x_ptr, weight_ptr, start + lanes, N_COLS)
        store(dx_ptr + row * stride_dx, start + lanes, N_COLS, rstd * (g - x * scaled))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    rows = (group * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    dy_at = dy_ptr + rows[:, None] * stride_dy + cols[None, :]
    x_at = x_ptr + rows[:, None] * stride_x + cols[None, :]
    hop = groups.to(tl.int64) * ROWS
    acc = tl.zeros((ROWS, COLS), tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        live = first + tl.arange(0, ROWS) < n_rows
        inside = live[:, None] & (cols < n_cols)[None, :]
        r = tl.load(rstd_ptr + first + tl.arange(0, ROWS), mask=live, other=0.0)
        acc += tl.load(dy_at, mask=inside, other=0.0).to(tl.float32) * (
            tl.load(x_at, mask=inside, other=0.0).to(tl.float32) * r[:, None]
        )
        dy_at += hop * stride_dy
        x_at += hop * stride_x
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(acc, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=min(block_of(n_cols), 8192),
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
    """rms_norm_backward as an operator."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        grads = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return grads[0], grads[1], None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
