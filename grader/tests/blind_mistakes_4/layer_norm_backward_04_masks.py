# labs/lab4_production_slice/layer_norm_backward.py | error | ln_partial: r_in, of shape (TR,), is combined with the (1, TC) mask of the columns without making it a column: shapes 32 and 64 cannot be broadcast and Triton does not compile; must be r_in[:, None].
"""LayerNorm backward in three kernels of my own: dx, partial sums over rows, final sums."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, on
from torch.library import triton_op

SPLITS = 48
TR, TC = tl.constexpr(32), tl.constexpr(64)


@triton.jit
def get(p, c, N: tl.constexpr):
    return tl.load(p + c, mask=c < N, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N"])
@triton.jit
def ln_dx(DY, X, W, DX, STATS, n_rows, s_dy, s_x, s_dx, eps, N: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    DY += row * s_dy
    X += row * s_x
    DX += row * s_dx
    inv_n = 1.0 / N
    mean = 0.0
    for c0 in range(0, N, BLOCK):
        mean += tl.sum(get(X, c0 + tl.arange(0, BLOCK), N), axis=0) * inv_n
    var = 0.0
    c1 = 0.0
    c2 = 0.0
    for c0 in range(0, N, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        xc = tl.where(c < N, get(X, c, N) - mean, 0.0)
        wdy = get(W, c, N) * get(DY, c, N)
        var += tl.sum(xc * xc, axis=0) / N
        c1 += tl.sum(wdy, axis=0) / N
        c2 += tl.sum(wdy * xc, axis=0) / N
    rstd = tl.rsqrt(var + tl.cast(eps, tl.float32))
    c2 *= rstd
    tl.store(STATS + row, mean)
    tl.store(STATS + n_rows + row, rstd)
    for c0 in range(0, N, BLOCK):
        c = c0 + tl.arange(0, BLOCK)
        norm = (get(X, c, N) - mean) * rstd
        wdy = get(W, c, N) * get(DY, c, N)
        dx = (wdy - (norm * c2 + c1)) * rstd
        tl.store(DX + c, dx.to(DX.dtype.element_ty), mask=c < N)


@triton.jit
def ln_partial(DY, X, STATS, PW, PB, n_rows, n_cols, s_dy, s_x):
    split = tl.program_id(1)
    splits = tl.num_programs(1)
    c = tl.program_id(0) * TC + tl.arange(0, TC)
    dw = tl.zeros((TR, TC), dtype=tl.float32)
    db = tl.zeros((TR, TC), dtype=tl.float32)
    n_tiles = tl.cdiv(n_rows, TR)
    for t in range(split, n_tiles, splits):
        r = (tl.arange(0, TR) + t * TR).to(tl.int64)
        r_in = r < n_rows
        both_in = r_in & (c < n_cols)[None, :]
        dy = tl.load(DY + r[:, None] * s_dy + c[None, :], mask=both_in, other=0.0).to(tl.float32)
        x = tl.load(X + r[:, None] * s_x + c[None, :], mask=both_in, other=0.0).to(tl.float32)
        mu = tl.load(STATS + r, mask=r_in, other=0.0)
        rs = tl.load(STATS + n_rows + r, mask=r_in, other=0.0)
        dw += dy * (x - mu[:, None]) * rs[:, None]
        db += dy
    tl.store(PW + split * n_cols + c, tl.sum(dw, axis=0), mask=c < n_cols)
    tl.store(PB + split * n_cols + c, tl.sum(db, axis=0), mask=c < n_cols)


@triton.jit
def ln_final(PW, PB, DW, DB, splits, n_cols):
    c = tl.program_id(0) * TC + tl.arange(0, TC)
    dw = tl.zeros((TC,), dtype=tl.float32)
    db = tl.zeros((TC,), dtype=tl.float32)
    for k in range(0, splits):
        dw += tl.load(PW + k * n_cols + c, mask=c < n_cols, other=0.0)
        db += tl.load(PB + k * n_cols + c, mask=c < n_cols, other=0.0)
    tl.store(DW + c, dw.to(DW.dtype.element_ty), mask=c < n_cols)
    tl.store(DB + c, db.to(DB.dtype.element_ty), mask=c < n_cols)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    stats = x.new_empty((2, n_rows), dtype=torch.float32)
    splits = min(SPLITS, triton.cdiv(n_rows, TR))
    part_w = x.new_empty((splits, n_cols), dtype=torch.float32)
    part_b = x.new_empty((splits, n_cols), dtype=torch.float32)
    on(ln_dx, x)[(n_rows,)](
        dy, x, weight, dx, stats, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps, N=n_cols, BLOCK=block_of(n_cols)
    )
    col_tiles = triton.cdiv(n_cols, TC)
    on(ln_partial, x)[(col_tiles, splits)](
        dy, x, stats, part_w, part_b, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    on(ln_final, x)[(col_tiles,)](part_w, part_b, dweight, dbias, splits, n_cols)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        grads = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return *grads, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
