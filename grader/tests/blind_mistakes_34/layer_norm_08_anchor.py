# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) mean_and_rstd: `tl.where(inside, x, 0.0) - mean` masks before the mean is subtracted, so each lane past the end of the row adds mean * mean to the sum of squares; should be tl.where(inside, x - mean, 0.0); shows where n_cols does not fill its blocks and the mean is not 0. (2) layer_norm_kernel loads weight and bias once, at columns 0 to BLOCK - 1, in front of the loop, so every later block takes those of the first; they should be loaded at the columns of the block; shows in rows of more than one block (n_cols > 16384)
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
    offs = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row, start + offs, N_COLS)
    mean = tl.sum(sums, axis=0) / N_COLS
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = start + offs < N_COLS
        x = load(x_row, start + offs, N_COLS)
        diff = tl.where(inside, x, 0.0) - mean
        squares += diff * diff
    variance = tl.sum(squares, axis=0) / N_COLS
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
    offs = tl.arange(0, BLOCK)
    w = load(weight_ptr, offs, N_COLS)
    b = load(bias_ptr, offs, N_COLS)
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + offs, N_COLS)
        store(y_row, start + offs, N_COLS, (x - mean) * rstd * w + b)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK = block_of(n_cols)
    kernel = on(layer_norm_kernel, x)
    kernel[(n_rows,)](x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=BLOCK)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
