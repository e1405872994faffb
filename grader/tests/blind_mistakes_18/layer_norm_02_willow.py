# labs/lab4_production_slice/layer_norm.py | corner | In mean_and_rstd the running mean, `mean += (block_mean - mean) / (turn + 1)`, gives every block the same share, also a last block that is shorter. Rows of more than 16384 columns that are no multiple of it get a wrong mean; the share of a block should be its number of columns over those seen so far.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    # BEGIN TODO 1: `mean` of the row, block by block (about 4 lines)
    mean = 0.0
    for turn in range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = turn * BLOCK + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        present = tl.sum(tl.where(cols < N_COLS, 1.0, 0.0), axis=0)
        block_mean = tl.sum(x, axis=0) / present
        mean += (block_mean - mean) / (turn + 1)
    # END TODO 1
    # BEGIN TODO 2: `variance`, the mean of the squared differences from the mean (about 7 lines)
    squares = 0.0
    for turn in range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = turn * BLOCK + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        d = tl.where(cols < N_COLS, x - mean, 0.0)
        squares += tl.sum(d * d, axis=0)
    variance = squares / N_COLS
    # END TODO 2
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    # BEGIN TODO 3: go over the row again: normalise, scale, shift and store it (about 6 lines)
    for turn in range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = turn * BLOCK + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        w = load(weight_ptr, cols, N_COLS)
        b = load(bias_ptr, cols, N_COLS)
        y = (x - mean) * rstd * w + b
        store(y_row, cols, N_COLS, y)
    # END TODO 3


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 4: launch layer_norm_kernel, one program for each row (about 4 lines)
    on(layer_norm_kernel, x)[(x.shape[0],)](
        x,
        weight,
        bias,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=x.shape[1],
        BLOCK=block_of(x.shape[1]),
    )
    # END TODO 4
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
