# labs/lab4_production_slice/layer_norm.py | corner | mean_and_rstd (so layer_norm_forward, and layer_norm_linear_forward behind it), where block after block is merged into mean and squares: the new block counts with BLOCK columns (`share = BLOCK / (start + BLOCK)`), also the last one, which may have fewer. Its own mean and squares are right, but its weight in the merge is too large. It shows for rows of more than one block (n_cols > 16384) that is no multiple of the block, as 16385, 24576 or 40000: then mean and variance lean towards the last block and y is wrong in all blocks of the row. Rows of one block (start is 0 there, so share is 1) and whole multiples such as 131072 are right. It should be `count / (start + count)` with the count of columns in this block, min(BLOCK, N_COLS - start).
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    One sweep: each block has its own mean and its own squared differences from it, and these are merged into
    those of all columns so far, as Chan, Golub and LeVeque do. The variance divides by N_COLS.
    """
    lanes = tl.arange(0, BLOCK)
    mean = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        count = tl.minimum(N_COLS - start, BLOCK)
        block_mean = tl.sum(x, axis=0) / count
        centred = tl.where(cols < N_COLS, x - block_mean, 0.0)
        share = BLOCK / (start + BLOCK)
        step = block_mean - mean
        squares += tl.sum(centred * centred, axis=0) + step * (step * (share * start))
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
        normal = (load(x_row, cols, N_COLS) - mean) * rstd
        scaled = normal * load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, scaled + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(
        x,
        weight,
        bias,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
