# labs/lab4_production_slice/layer_norm.py | right | Unusual: mean and sum of squares in one sweep, block statistics joined by the formula of Chan, Golub and LeVeque in a helper `merged`, 1 / sqrt in place of rsqrt, and the second sweep goes over the blocks from the last to the first.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def merged(count, mean, squares, more, block_mean, block_squares):
    """Join the statistics of `count` numbers with those of `more` others, after Chan, Golub and LeVeque."""
    delta = block_mean - mean
    share = more / (count + more)
    return count + more, mean + delta * share, squares + block_squares + delta * delta * (count * share)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    mean = tl.zeros((), tl.float32)
    squares = tl.zeros((), tl.float32)
    count = tl.zeros((), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        more = tl.sum(inside.to(tl.float32), axis=0)
        block_mean = tl.sum(x, axis=0) / more
        off = tl.where(inside, x - block_mean, 0.0)
        count, mean, squares = merged(count, mean, squares, more, block_mean, tl.sum(off * off, axis=0))
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, 1.0 / tl.sqrt(squares / N_COLS + tl.cast(eps, tl.float32))


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
    # The last block was read last, and may still be in the cache: begin with it.
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = LAST - back + tl.arange(0, BLOCK)
        centred = load(x_row, cols, N_COLS) - mean
        factor = rstd * load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, centred * factor + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    strides = x.stride(0), out.stride(0)
    launch(x, weight, bias, out, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
