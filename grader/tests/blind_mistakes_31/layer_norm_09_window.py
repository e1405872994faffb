# labs/lab4_production_slice/layer_norm.py | contract | the helper `fetch` loads all BLOCK columns without a mask and sets those past the end to 0 only afterwards, with tl.where: every number is right, but wherever n_cols is no multiple of BLOCK the kernel reads the space between rows or the next row, and for the last row, for weight and for bias what lies past the end of the tensor ("the space between rows is neither read nor written"); it should be tl.load(row_ptr + cols, mask=cols < N_COLS, other=0.0)
"""LayerNorm over rows of any length, and the same as an operator.

The statistics of a row are joined block by block, after Chan, Golub and LeVeque, so a row is read twice, not three
times.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on, store
from torch.library import triton_op


@triton.jit
def fetch(row_ptr, cols, N_COLS: tl.constexpr):
    """Return columns `cols` of a row in fp32, and 0 where the row has no such column."""
    values = tl.load(row_ptr + cols).to(tl.float32)
    return tl.where(cols < N_COLS, values, 0.0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    mean = 0.0
    squares = 0.0  # of the differences from the mean, over the `start` columns seen so far
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        count = tl.minimum(N_COLS - start, BLOCK).to(tl.float32)
        x = fetch(x_row, cols, N_COLS)
        block_mean = tl.sum(x, axis=0) / count
        apart = tl.where(cols < N_COLS, x - block_mean, 0.0)
        share = count / (start + count)
        step = block_mean - mean
        squares += tl.sum(apart * apart, axis=0) + step * step * (start * share)
        mean += step * share
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
        normalised = (fetch(x_row, cols, N_COLS) - mean) * rstd
        weight = fetch(weight_ptr, cols, N_COLS)
        bias = fetch(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, normalised * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_cols = x.shape[1]
    launch = on(layer_norm_kernel, x)[(x.shape[0],)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
