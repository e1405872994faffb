# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) `mean += delta / blocks` in `mean_and_rstd` weighs all blocks alike; it should be delta * here / (count + here). Shows for rows of more than 16384 columns whose last block is not full (16385, 40000). (2) `eps = eps if eps > 0.0 else 1e-5` in `layer_norm_forward` replaces eps = 0 by the default; 0 should be honoured. Shows for eps = 0 with narrow rows.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def block_statistics(x_row, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the count, the mean and the sum of squared differences of one block of a row."""
    cols = start + tl.arange(0, BLOCK)
    count = tl.minimum(N_COLS - start, BLOCK).to(tl.float32)
    x = load(x_row, cols, N_COLS)
    mean = tl.sum(x, axis=0) / count
    difference = tl.where(cols < N_COLS, x - mean, 0.0)
    return count, mean, tl.sum(difference * difference, axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    mean = tl.zeros((), tl.float32)
    squares = tl.zeros((), tl.float32)
    count = tl.zeros((), tl.float32)
    blocks = tl.zeros((), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        here, block_mean, block_squares = block_statistics(x_row, start, N_COLS, BLOCK)
        delta = block_mean - mean
        blocks += 1.0
        squares += block_squares + delta * delta * (count * here / (count + here))
        mean += delta / blocks
        count += here
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


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
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    eps = eps if eps > 0.0 else 1e-5
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    strides = x.stride(0), out.stride(0)
    launch(x, weight, bias, out, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
