# labs/lab4_production_slice/layer_norm.py | corner | mean_and_rstd joins the statistics of blocks by the formula of Chan et al., but the weight of the squared distance of two means, `seen * BLOCK / (seen + BLOCK)`, takes every block for a full one; it should be seen * count / (seen + count) with the count of columns that the block really has. The mean is right, the variance too large. Shows only in rows longer than one block (more than 16384 columns) whose last block is not full: strongly for 16385 columns, slightly (some 1e-5 of y, in fp32) for 24576 or 40000; rows of up to 16384 columns and multiples of 16384 are right.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS. The row is read once: each block gives its own mean and its own sum of
    squared differences, which are joined with those of all columns seen before (Chan, Golub and LeVeque).
    """
    seen = 0.0
    mean = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        count = tl.sum((cols < N_COLS).to(tl.float32), axis=0)
        block_mean = tl.sum(x, axis=0) / count
        d = tl.where(cols < N_COLS, x - block_mean, 0.0)
        apart = block_mean - mean
        squares += tl.sum(d * d, axis=0) + apart * apart * (seen * BLOCK / (seen + BLOCK))
        mean += apart * (count / (seen + count))
        seen += count
    variance = squares / N_COLS
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
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(layer_norm_kernel, x)[(rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block_of(cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
