# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) Grads.backward passes dy to backward_op as it is; the kernels take the columns of dy as contiguous, so it must be dy.contiguous(). Shows where dy is expanded, transposed or has every second column. (2) dx_kernel has one row stride for x and dx, `dx_ptr + i * step`, the launch passes x.stride(0); dx needs its own, dx.stride(0). Shows where the given dx has another row stride than x.
"""LayerNorm for autograd."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
R, C = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, w_ptr, dx_ptr, mean_ptr, rstd_ptr, step_dy, step, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_row, dy_row, dx_row = x_ptr + i * step, dy_ptr + i * step_dy, dx_ptr + i * step
    s = 0.0
    for k in range(0, N_COLS, BLOCK):
        s += tl.sum(load(x_row, k + lanes, N_COLS), axis=0)
    mu = s / N_COLS
    s_dd, s_g, s_gd = 0.0, 0.0, 0.0
    for k in range(0, N_COLS, BLOCK):
        j = k + lanes
        d = tl.where(j < N_COLS, load(x_row, j, N_COLS) - mu, 0.0)
        g = load(dy_row, j, N_COLS) * load(w_ptr, j, N_COLS)
        s_dd += tl.sum(d * d, axis=0)
        s_g += tl.sum(g, axis=0)
        s_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(s_dd / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + i, mu)
    tl.store(rstd_ptr + i, rstd)
    a = rstd * rstd * s_gd / N_COLS
    b = s_g / N_COLS
    for k in range(0, N_COLS, BLOCK):
        j = k + lanes
        g = load(dy_row, j, N_COLS) * load(w_ptr, j, N_COLS)
        store(dx_row, j, N_COLS, rstd * (g - b - (load(x_row, j, N_COLS) - mu) * a))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, step_dy, step_x):
    k, groups = tl.program_id(1), tl.num_programs(1)
    j = tl.program_id(0) * C + tl.arange(0, C)
    dw = tl.zeros((R, C), tl.float32)
    db = tl.zeros((R, C), tl.float32)
    for first in range(k * R, n_rows, groups * R):
        i = (first + tl.arange(0, R)).to(tl.int64)
        m = load(mean_ptr, i, n_rows)[:, None]
        s = load(rstd_ptr, i, n_rows)[:, None]
        here = (i < n_rows)[:, None] & (j < n_cols)[None, :]
        dy = tl.load(dy_ptr + (i * step_dy)[:, None] + j[None, :], mask=here, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + (i * step_x)[:, None] + j[None, :], mask=here, other=0.0).to(tl.float32)
        dw += dy * (x - m) * s
        db += dy
    store(sums_ptr + k * n_cols, j, n_cols, tl.sum(dw, axis=0))
    store(sums_ptr + (groups + k) * n_cols, j, n_cols, tl.sum(db, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    m, n = x.shape
    dx = torch.empty_like(x) if dx is None else dx
    dweight = weight.new_empty((n,)) if dweight is None else dweight
    dbias = weight.new_empty((n,)) if dbias is None else dbias
    mean = x.new_empty((m,), dtype=torch.float32)
    rstd = x.new_empty((m,), dtype=torch.float32)
    on(dx_kernel, x)[(m,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), eps, N_COLS=n, BLOCK=block_of(n)
    )
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(m, 16)), n), dtype=torch.float32)
    on(weight_gradient_kernel, x)[(triton.cdiv(n, 128), sums.size(1))](
        dy, x, mean, rstd, sums, m, n, dy.stride(0), x.stride(0)
    )
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class Grads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dw, db = backward_op(dy, x, weight, ctx.eps)
        return dx, dw, db, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return Grads.apply(x, weight, bias, eps)
