# labs/lab4_production_slice/rms_norm_backward.py | error | RMSNorm.backward returns two gradients (dx, dweight) although forward has three arguments after ctx: PyTorch raises RuntimeError, incorrect number of gradients (expected 3, got 2); None for eps is missing.
"""RMSNorm backward in the manner of a textbook: name every quantity of the formula."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op

GROUPS = 32
ROWS = 16
COLS = 128


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)

    # mean of the squares and mean of g * x
    acc_xx = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for offset in range(0, N_COLS, BLOCK):
        col = offset + lanes
        valid = col < N_COLS
        x = tl.load(x_ptr + row * stride_x + col, mask=valid, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride_dy + col, mask=valid, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + col, mask=valid, other=0.0).to(tl.float32)
        acc_xx += x * x
        acc_gx += dy * w * x
    mean_xx = tl.sum(acc_xx, axis=0) / N_COLS
    mean_gx = tl.sum(acc_gx, axis=0) / N_COLS
    rstd = 1.0 / tl.sqrt(mean_xx + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)

    # dx = rstd * g - rstd^3 * x * mean(g * x)
    for offset in range(0, N_COLS, BLOCK):
        col = offset + lanes
        valid = col < N_COLS
        x = tl.load(x_ptr + row * stride_x + col, mask=valid, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * stride_dy + col, mask=valid, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + col, mask=valid, other=0.0).to(tl.float32)
        n = x * rstd
        dx = rstd * (dy * w - n * (rstd * mean_gx))
        tl.store(dx_ptr + row * stride_dx + col, dx.to(dx_ptr.dtype.element_ty), mask=valid)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, groups,
    TILE_R: tl.constexpr, TILE_C: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(axis=1)
    col = tl.program_id(axis=0) * TILE_C + tl.arange(0, TILE_C)
    acc = tl.zeros((TILE_R, TILE_C), dtype=tl.float32)
    tiles = tl.cdiv(n_rows, TILE_R)
    for t in range(group, tiles, groups):
        r = t * TILE_R + tl.arange(0, TILE_R).to(tl.int64)
        valid = (r < n_rows)[:, None] & (col < n_cols)[None, :]
        x = tl.load(x_ptr + r[:, None] * stride_x + col[None, :], mask=valid, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + r[:, None] * stride_dy + col[None, :], mask=valid, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + r, mask=r < n_rows, other=0.0)
        acc += dy * (x * rstd[:, None])
    tl.store(sums_ptr + group * n_cols + col, tl.sum(acc, axis=0), mask=col < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), groups, TILE_R=ROWS, TILE_C=COLS
    )
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
