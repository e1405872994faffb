# labs/lab4_production_slice/layer_norm.py | corner | Rows of more than one block: mean_and_rstd replaces m2 by the share of the current block instead of adding it, so the squares of the earlier blocks are lost; it should be m2 += block_m2 + delta * delta * seen * count / both.
"""LayerNorm, with mean and variance of the blocks of a row merged one after the other (Chan et al.)."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def block_statistics(x_row, cols, N_COLS: tl.constexpr):
    """Count, mean and sum of squared differences of the part of a block that lies in the row."""
    inside = cols < N_COLS
    x = load(x_row, cols, N_COLS)
    count = tl.sum(inside.to(tl.float32), axis=0)
    mean = tl.sum(x, axis=0) / count
    d = tl.where(inside, x - mean, 0.0)
    return count, mean, tl.sum(d * d, axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    seen = 0.0  # columns so far
    mean = 0.0  # their mean
    m2 = 0.0  # their squared differences from it
    for start in range(0, N_COLS, BLOCK):
        count, block_mean, block_m2 = block_statistics(x_row, start + tl.arange(0, BLOCK), N_COLS)
        both = seen + count
        delta = block_mean - mean
        m2 = block_m2 + delta * delta * seen * count / both
        mean += delta * count / both
        seen = both
    variance = m2 / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, n * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x; the result goes to `out`."""
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    on(layer_norm_kernel, x)[(rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block_of(cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
