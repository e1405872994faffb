# labs/lab4_production_slice/layer_norm.py | corner | In `mean_and_rstd`, `share = count.to(tl.float32) / (start + BLOCK)` takes the last block for a whole one; it should be `/ (start + count)`. Mean and variance are slightly wrong in rows of more than 16384 columns that are no multiple of 16384; it shows in fp32 (16385, 24576, 40000), in 16 bits it is mostly below a rounding.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def moments(x_row, start, count, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of `count` numbers of a row from column `start` on, and the sum of their squared differences."""
    cols = start + tl.arange(0, BLOCK)
    x = load(x_row, cols, N_COLS)
    mean = tl.sum(x, axis=0) / count
    off = tl.where(cols < N_COLS, x - mean, 0.0)
    return mean, tl.sum(off * off, axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    One sweep: the moments of each block are joined with those of the columns before it, after Chan, Golub
    and LeVeque.
    """
    mean, squares = moments(x_row, 0, N_COLS if N_COLS < BLOCK else BLOCK, N_COLS, BLOCK)
    for start in range(BLOCK, N_COLS, BLOCK):
        count = tl.minimum(N_COLS - start, BLOCK)
        block_mean, block_squares = moments(x_row, start, count, N_COLS, BLOCK)
        share = count.to(tl.float32) / (start + BLOCK)
        delta = block_mean - mean
        mean += delta * share
        squares += block_squares + delta * delta * start * share
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


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
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
