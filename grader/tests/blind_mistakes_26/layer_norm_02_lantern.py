# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) mean_and_rstd, `d = load(x_row + start, lanes, N_COLS - start) - mean`: lanes past the end load 0 and add mean * mean to the squares, so the variance is too large wherever n_cols is no multiple of BLOCK and the mean is not 0; it should be tl.where(lanes < N_COLS - start, ... - mean, 0.0). (2) layer_norm_kernel, `load(bias_ptr, lanes, left)`: every block takes the bias of the first columns, so all columns from 16384 on have a wrong bias in rows of more than 16384 columns; it should be bias_ptr + start.
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
    lanes = tl.arange(0, BLOCK)

    # Each lane has a sum of its own; the lanes are added up once, behind the loop.
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row + start, lanes, N_COLS - start)
    mean = tl.sum(sums, axis=0) / N_COLS

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        d = load(x_row + start, lanes, N_COLS - start) - mean
        squares += d * d
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
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    lanes = tl.arange(0, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        left = N_COLS - start
        x = load(x_row + start, lanes, left)
        w = load(weight_ptr + start, lanes, left)
        b = load(bias_ptr, lanes, left)
        store(y_row + start, lanes, left, (x - mean) * rstd * w + b)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    grid = (x.size(0),)
    n_cols = x.size(1)
    on(layer_norm_kernel, x)[grid](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
