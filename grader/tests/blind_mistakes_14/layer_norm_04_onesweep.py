# labs/lab4_production_slice/layer_norm.py | corner | In mean_and_rstd, `m2 += part_m2` adds up the squares of each block about the mean of that block only, so rows of more than one block (over 1024 columns) get too small a variance; it should be `m2 += part_m2 + delta * delta * seen * size / (seen + size)` with `seen` before the update.
"""LayerNorm over rows of any length, with the statistics of a row in one sweep."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

CHUNK = 1024


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    Each block has its own mean and its own sum of squared differences, and is joined to what came before.
    """
    seen = 0.0
    mean = 0.0
    m2 = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        # this block alone
        size = tl.sum(tl.where(inside, 1.0, 0.0), axis=0)
        part_mean = tl.sum(x, axis=0) / size
        part = tl.where(inside, x - part_mean, 0.0)
        part_m2 = tl.sum(part * part, axis=0)
        # join
        delta = part_mean - mean
        seen += size
        mean += delta * (size / seen)
        m2 += part_m2
    variance = m2 / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
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
        normed = (load(x_row, cols, N_COLS) - mean) * rstd
        y = normed * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    width = min(block_of(x.shape[1]), CHUNK)
    on(layer_norm_kernel, x)[(x.shape[0],)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=x.shape[1], BLOCK=width
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
