# labs/lab4_production_slice/layer_norm.py | right | right
"""LayerNorm over rows of any length, with the statistics of a row in one sweep."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    Each block has a mean and a sum of squared differences of its own. They are joined with those of the
    blocks before it, after Chan, Golub and LeVeque: no square of a number far from its mean is taken.
    """
    mean = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        width = tl.minimum(N_COLS - start, BLOCK)
        block_mean = tl.sum(x, axis=0) / width
        d = tl.where(cols < N_COLS, x - block_mean, 0.0)
        gap = block_mean - mean
        share = width / (start + width)
        mean += gap * share
        squares += tl.sum(d * d, axis=0) + gap * (gap * share * start)
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        slope = load(weight_ptr, cols, N_COLS) * rstd
        d = load(x_row, cols, N_COLS) - mean
        store(y_row, cols, N_COLS, d * slope + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
