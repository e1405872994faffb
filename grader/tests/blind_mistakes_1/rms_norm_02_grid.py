# lab4_production_slice/rms_norm.py | error | the launch grid `grid = (x.shape[0])` is an int, not a tuple (the comma is missing), so the launch raises before any program runs | "one program for each row", hint 1: "as many programs as x has rows, as a tuple"; raises for all inputs
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    eps = tl.cast(eps, tl.float32)
    j = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        v = load(x_ptr, j, N_COLS)
        inverse = tl.rsqrt(tl.sum(v * v, axis=0) / N_COLS + eps)
        store(y_ptr, j, N_COLS, v * inverse * load(weight_ptr, j, N_COLS))
    else:
        squares = 0.0
        for lo in range(0, N_COLS, BLOCK):
            v = load(x_ptr, lo + j, N_COLS)
            squares += tl.sum(v * v, axis=0)
        inverse = tl.rsqrt(squares / N_COLS + eps)
        for lo in range(0, N_COLS, BLOCK):
            v = load(x_ptr, lo + j, N_COLS)
            store(y_ptr, lo + j, N_COLS, v * inverse * load(weight_ptr, lo + j, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    cols = x.shape[1]
    grid = (x.shape[0])
    on(rms_norm_kernel, x)[grid](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block_of(cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
