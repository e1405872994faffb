# lab4_production_slice/layer_norm.py | corner | mean_and_rstd merges the blocks as in Chan's method, but the new mean is `mean + delta / (k + 1)`, the unweighted average of block means (should be mean + delta * width / (seen + width)): a last block with fewer columns counts as much as a full one | "Sizes. Rows of any length" and "Print mean ... By what did you divide?", mean = sum over the row / N: shows only in rows of several blocks whose last one is partial (n_cols > 16384 and no multiple of 16384), also in layer_norm_linear_forward for such rows
"""LayerNorm over rows of any length. The statistics take one sweep: each block has its own mean and squares."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    mean = 0.0
    m2 = 0.0
    for k in range((N_COLS + BLOCK - 1) // BLOCK):
        seen = k * BLOCK
        cols = seen + tl.arange(0, BLOCK)
        width = tl.minimum(N_COLS - seen, BLOCK)
        x = load(x_row, cols, N_COLS)
        # this block alone
        mean_k = tl.sum(x, axis=0) / width
        diff = tl.where(cols < N_COLS, x - mean_k, 0.0)
        m2_k = tl.sum(diff * diff, axis=0)
        # merge it with all blocks before
        delta = mean_k - mean
        m2 += m2_k + delta * delta * (seen / (seen + width)) * width
        mean += delta / (k + 1)
    variance = m2 / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
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
    cols = tl.arange(0, BLOCK)
    for _ in range((N_COLS + BLOCK - 1) // BLOCK):
        scale = load(weight_ptr, cols, N_COLS) * rstd
        shifted = load(x_row, cols, N_COLS) - mean
        store(y_row, cols, N_COLS, shifted * scale + load(bias_ptr, cols, N_COLS))
        cols += BLOCK


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    y = out
    if y is None:
        y = torch.empty_like(x)
    width = x.size(1)
    on(layer_norm_kernel, x)[(x.size(0),)](
        x, weight, bias, y, x.stride(0), y.stride(0), eps, N_COLS=width, BLOCK=block_of(width)
    )
    return y


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
