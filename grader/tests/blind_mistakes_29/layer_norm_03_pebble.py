# labs/lab4_production_slice/layer_norm.py | corner | In mean_and_rstd, first loop, `mean += (here - mean) / blocks`: the means of the blocks are averaged with equal weights, although the last block may have fewer columns. Shows only in rows of more than 16384 columns whose length is no multiple of 16384 (as 16385 or 40000): mean, variance and y are wrong; most where the last block is short. Each block's mean needs its share of the columns as weight (or: add up x, divide by N_COLS at the end).
"""LayerNorm: statistics of a row, the kernel by rows, and the operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The mean is kept up to date block by block, so that no sum grows with the length of the row.
    """
    mean = 0.0
    blocks = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        here = tl.sum(load(x_row, cols, N_COLS), axis=0) / tl.minimum(N_COLS - start, BLOCK)
        blocks += 1.0
        mean += (here - mean) / blocks

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        distance = load(x_row, cols, N_COLS) - mean
        squares += tl.where(cols < N_COLS, distance * distance, 0.0)
    variance = tl.sum(squares, axis=0) / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def normalised(x_row, cols, n_cols, mean, rstd):
    """Columns `cols` of the row with mean 0 and deviation 1."""
    return (load(x_row, cols, n_cols) - mean) * rstd


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
        n = normalised(x_row, cols, N_COLS, mean, rstd)
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x, (n_rows, n_cols)."""
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.size(0), x.size(1)
    on(layer_norm_kernel, x)[(rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block_of(cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
