# labs/lab4_production_slice/rms_norm_backward.py | error | RMSNorm.forward gives the float eps to ctx.save_for_backward, which takes tensors only: TypeError as soon as rms_norm is called; eps should go onto ctx, as ctx.eps = eps.
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
def dx_kernel(dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
              N_COLS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    r = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    t = 0.0
    for k in range(0, N_COLS, BLOCK):
        c = k + tl.arange(0, BLOCK)
        x = load(x_ptr + r * stride_x, c, N_COLS)
        g = load(dy_ptr + r * stride_dy, c, N_COLS) * load(weight_ptr, c, N_COLS)
        s += tl.sum(x * x, axis=0)
        t += tl.sum(x * g, axis=0)
    rstd = tl.rsqrt(s / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + r, rstd)
    for k in range(0, N_COLS, BLOCK):
        c = k + tl.arange(0, BLOCK)
        n = load(x_ptr + r * stride_x, c, N_COLS) * rstd
        g = load(dy_ptr + r * stride_dy, c, N_COLS) * load(weight_ptr, c, N_COLS)
        store(dx_ptr + r * stride_dx, c, N_COLS, rstd * (g - n * (t * rstd / N_COLS)))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        far = rows.to(tl.int64)
        m = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + far * stride_dy + cols, mask=m, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + far * stride_x + cols, mask=m, other=0.0).to(tl.float32)
        acc += dy * x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(acc, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
                                N_COLS=n_cols, BLOCK=block_of(n_cols))  # fmt: skip
    grid = (triton.cdiv(n_cols, COLS), sums.shape[0])
    on(weight_gradient_kernel, x)[grid](dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
        ctx.save_for_backward(x, weight, eps)
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight, eps = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    return RMSNorm.apply(x, weight, eps)
