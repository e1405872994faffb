# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | the third sum of dx_kernel adds dy * d, it must add g * d with g = dy * weight; dx is wrong wherever weight is not constant 1, dweight and dbias are right
"""LayerNorm, backward."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 64
ROWS, COLS = tl.constexpr(8), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(dy_p, x_p, w_p, dx_p, mu_p, rs_p, sdy, sx, sdx, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    dy_p += i * sdy
    x_p += i * sx
    dx_p += i * sdx
    lane = tl.arange(0, BLOCK)

    mu = 0.0
    for k in range(0, N_COLS, BLOCK):
        mu += tl.sum(load(x_p, k + lane, N_COLS), axis=0)
    mu = mu / N_COLS

    v = 0.0
    a = 0.0
    b = 0.0
    for k in range(0, N_COLS, BLOCK):
        c = k + lane
        d = tl.where(c < N_COLS, load(x_p, c, N_COLS) - mu, 0.0)
        t = load(dy_p, c, N_COLS)
        v += tl.sum(d * d, axis=0)
        a += tl.sum(t * load(w_p, c, N_COLS), axis=0)
        b += tl.sum(t * d, axis=0)
    rs = tl.rsqrt(v / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mu_p + i, mu)
    tl.store(rs_p + i, rs)

    a = a / N_COLS
    b = b * rs / N_COLS
    for k in range(0, N_COLS, BLOCK):
        c = k + lane
        n = (load(x_p, c, N_COLS) - mu) * rs
        g = load(dy_p, c, N_COLS) * load(w_p, c, N_COLS)
        store(dx_p, c, N_COLS, (g - a - n * b) * rs)


@triton.jit
def dw_db_kernel(dy_p, x_p, mu_p, rs_p, out_p, n_rows, n_cols, sdy, sx):
    k = tl.program_id(1)
    n_groups = tl.num_programs(1)
    c = tl.program_id(0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), dtype=tl.float32)
    db = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(k * ROWS, n_rows, n_groups * ROWS):
        r = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        m = (r < n_rows) & (c < n_cols)
        t = tl.load(dy_p + r * sdy + c, mask=m, other=0.0).to(tl.float32)
        x = tl.load(x_p + r * sx + c, mask=m, other=0.0).to(tl.float32)
        mu = tl.load(mu_p + r, mask=r < n_rows, other=0.0)
        rs = tl.load(rs_p + r, mask=r < n_rows, other=0.0)
        dw += t * (x - mu) * rs
        db += t
    store(out_p + k * n_cols, c, n_cols, tl.sum(dw, axis=0))
    store(out_p + (n_groups + k) * n_cols, c, n_cols, tl.sum(db, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """dx, dweight, dbias."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    m, n = x.shape
    mu, rs = torch.empty((2, m), device=x.device, dtype=torch.float32)
    part = x.new_empty((2, min(GROUPS, triton.cdiv(m, ROWS)), n), dtype=torch.float32)
    on(dx_kernel, x)[(m,)](
        dy, x, weight, dx, mu, rs, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n, BLOCK=block_of(n)
    )
    on(dw_db_kernel, x)[(triton.cdiv(n, COLS), part.shape[1])](
        dy, x, mu, rs, part, m, n, dy.stride(0), x.stride(0)
    )
    column_sums(part[0], dweight)
    column_sums(part[1], dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """Autograd."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """y"""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """dx, dweight, dbias, None"""
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward."""
    return LayerNorm.apply(x, weight, bias, eps)
