# labs/lab4_production_slice/layer_norm.py | corner | mean_and_rstd merges blocks by counts, and takes BLOCK as the count of each block (`here = BLOCK`) also for the last, partial one; so the mean of that block is divided by too many columns and weighted wrongly; it must be the number of columns that exist in the block. Wrong whenever n_cols is not a multiple of BLOCK.
"""LayerNorm with the parallel variance of Chan, Golub and LeVeque: blocks are merged one after the other."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def block_moments(x, inside, count):
    """Mean of a block, and the sum of the squared differences from it."""
    mu = tl.sum(x, axis=0) / count
    delta = tl.where(inside, x - mu, 0.0)
    return mu, tl.sum(delta * delta, axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    mean = 0.0
    m2 = 0.0
    seen = 0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        here = BLOCK
        mu, s2 = block_moments(load(x_row, cols, N_COLS), inside, here)
        both = seen + here
        gap = mu - mean
        mean += gap * (here / both)
        m2 += s2 + gap * gap * (seen * here / both)
        seen = both
    variance = m2 / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, tl.fma(n, load(weight_ptr, cols, N_COLS), load(bias_ptr, cols, N_COLS)))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    rows, cols = x.shape
    grid = (rows,)
    kernel = on(layer_norm_kernel, x)
    kernel[grid](x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block_of(cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
