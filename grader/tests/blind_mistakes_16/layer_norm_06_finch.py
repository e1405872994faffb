# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) mean_and_rstd takes tl.maximum(variance, eps) under the root where it should be variance + eps: clearly wrong where eps is not small beside the variance, as eps = 1. (2) layer_norm_forward passes out.stride(0), x.stride(0) in this order to stride_x, stride_y; it should be x.stride(0), out.stride(0): wrong where the two differ.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The two statistics of a row, in fp32; the variance divides by N_COLS."""
    mean = 0.0
    for i in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, i + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = mean / N_COLS

    variance = 0.0
    for i in range(0, N_COLS, BLOCK):
        c = i + tl.arange(0, BLOCK)
        e = load(x_row, c, N_COLS) - mean
        variance += tl.sum(tl.where(c < N_COLS, e * e, 0.0), axis=0)
    variance = variance / N_COLS

    under_root = tl.maximum(variance, tl.cast(eps, tl.float32))
    return mean, tl.rsqrt(under_root)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + i * stride_x, y_ptr + i * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for j in range(0, N_COLS, BLOCK):
        c = j + tl.arange(0, BLOCK)
        normed = (load(x_row, c, N_COLS) - mean) * rstd
        normed = normed * load(weight_ptr, c, N_COLS) + load(bias_ptr, c, N_COLS)
        store(y_row, c, N_COLS, normed)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n = x.shape[1]
    sizes = {"N_COLS": n, "BLOCK": block_of(n)}
    on(layer_norm_kernel, x)[(x.shape[0],)](x, weight, bias, out, out.stride(0), x.stride(0), eps, **sizes)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
