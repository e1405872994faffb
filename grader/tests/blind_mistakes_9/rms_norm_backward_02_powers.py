# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) `dx_kernel` subtracts x * rstd * rstd * mean(g * x): one factor rstd is missing, it must be x * rstd^3 * mean(g * x); dx is wrong wherever rstd is not 1. (2) `RMSNorm.backward` calls the operator with the default eps (`EPS`) instead of the eps of the forward pass, which is not kept on ctx; dx and dweight of rms_norm are wrong for eps far from 1e-6 against the mean square, as with eps = 1
"""The gradients of RMSNorm, with the powers of rstd multiplied out."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

EPS = 1e-6
TILE_M, TILE_N = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx = rstd * g - x * (a power of rstd) * mean(g * x)."""
    i = tl.program_id(0).to(tl.int64)
    mean_xx = 0.0
    mean_gx = 0.0
    for j in range(0, N_COLS, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        x = load(x_ptr + i * stride_x, cols, N_COLS)
        g = load(dy_ptr + i * stride_dy, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        mean_xx += tl.sum(x * x, axis=0) / N_COLS
        mean_gx += tl.sum(g * x, axis=0) / N_COLS
    rstd = 1.0 / tl.sqrt(mean_xx + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + i, rstd)
    correction = rstd * rstd * mean_gx
    for j in range(0, N_COLS, BLOCK):
        cols = j + tl.arange(0, BLOCK)
        x = load(x_ptr + i * stride_x, cols, N_COLS)
        g = load(dy_ptr + i * stride_dy, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + i * stride_dx, cols, N_COLS, rstd * g - x * correction)


@triton.jit
def dweight_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    g = tl.program_id(1)
    step = tl.num_programs(1) * TILE_M
    n = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    acc = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    m = g * TILE_M
    while m < n_rows:
        rows = (m + tl.arange(0, TILE_M)[:, None]).to(tl.int64)
        ok = (rows < n_rows) & (n[None, :] < n_cols)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dy = tl.load(dy_ptr + rows * stride_dy + n[None, :], mask=ok, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + n[None, :], mask=ok, other=0.0).to(tl.float32)
        acc += dy * (x * rstd)
        m += step
    store(sums_ptr + g * n_cols, n, n_cols, tl.sum(acc, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = EPS, dx=None, dweight=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    groups = min(32, triton.cdiv(n_rows, 16))
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dweight_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
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
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, EPS)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = EPS) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
