# labs/lab4_production_slice/layer_norm.py | wrong everywhere | layer_norm_kernel, both branches: y = (n + bias) * weight in place of n * weight + bias.
"""LayerNorm. A row of one block stays in registers; longer rows are read again."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def add_up(p, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, N_COLS, BLOCK):
        idx = c + tl.arange(0, BLOCK)
        acc += tl.load(p + idx, mask=idx < N_COLS, other=0.0).to(tl.float32)
    return tl.sum(acc, axis=0)


@triton.jit
def add_up_squares(p, mean, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, N_COLS, BLOCK):
        idx = c + tl.arange(0, BLOCK)
        diff = tl.load(p + idx, mask=idx < N_COLS, other=0.0).to(tl.float32) - mean
        acc += tl.where(idx < N_COLS, diff * diff, 0.0)
    return tl.sum(acc, axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    mean = add_up(x_row, N_COLS, BLOCK) / N_COLS
    var = add_up_squares(x_row, mean, N_COLS, BLOCK) / N_COLS
    return mean, 1.0 / tl.sqrt(var + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(X, W, B, Y, sx, sy, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    X += r * sx
    Y += r * sy
    if N_COLS <= BLOCK:
        idx = tl.arange(0, BLOCK)
        ok = idx < N_COLS
        x = tl.load(X + idx, mask=ok, other=0.0).to(tl.float32)
        mean = tl.sum(x, axis=0) / N_COLS
        diff = tl.where(ok, x - mean, 0.0)
        var = tl.sum(diff * diff, axis=0) / N_COLS
        rstd = 1.0 / tl.sqrt(var + tl.cast(eps, tl.float32))
        w = tl.load(W + idx, mask=ok, other=0.0).to(tl.float32)
        b = tl.load(B + idx, mask=ok, other=0.0).to(tl.float32)
        tl.store(Y + idx, ((diff * rstd + b) * w).to(Y.dtype.element_ty), mask=ok)
    else:
        mean, rstd = mean_and_rstd(X, eps, N_COLS, BLOCK)
        for c in range(0, N_COLS, BLOCK):
            idx = c + tl.arange(0, BLOCK)
            ok = idx < N_COLS
            x = tl.load(X + idx, mask=ok, other=0.0).to(tl.float32)
            w = tl.load(W + idx, mask=ok, other=0.0).to(tl.float32)
            b = tl.load(B + idx, mask=ok, other=0.0).to(tl.float32)
            y = ((x - mean) * rstd + b) * w
            tl.store(Y + idx, y.to(Y.dtype.element_ty), mask=ok)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    M, N = x.shape
    on(layer_norm_kernel, x)[(M,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=N, BLOCK=block_of(N)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
