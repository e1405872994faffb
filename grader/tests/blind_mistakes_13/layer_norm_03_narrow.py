# labs/lab4_production_slice/layer_norm.py | corner | In mean_and_rstd `mean = means / blocks` averages the means of the blocks with equal weight, which is wrong where a row has several blocks (of 1024 columns) and the last one is not full; it should have been the sum of the whole row over N_COLS.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MAX_BLOCK = 1024  # small blocks: fewer registers, more programs at a time


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    # BEGIN TODO 1: `mean` of the row, block by block (about 4 lines)
    means = 0.0
    blocks = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        valid = tl.sum(tl.where(cols < N_COLS, 1.0, 0.0), axis=0)  # the last block may be shorter
        means += tl.sum(load(x_row, cols, N_COLS), axis=0) / valid
        blocks += 1.0
    mean = means / blocks
    # END TODO 1
    # BEGIN TODO 2: `variance`, the mean of the squared differences from the mean (about 7 lines)
    sum_of_squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        diff = load(x_row, cols, N_COLS) - mean
        diff = tl.where(cols < N_COLS, diff, 0.0)
        sum_of_squares += tl.sum(diff * diff, axis=0)
    variance = sum_of_squares / N_COLS
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
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        gain = load(weight_ptr, cols, N_COLS)
        offset = load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, n * gain + offset)
    # END TODO 3


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 4: launch layer_norm_kernel, one program for each row (about 4 lines)
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), MAX_BLOCK)
    grid = (n_rows,)
    on(layer_norm_kernel, x)[grid](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    # END TODO 4
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
