# labs/lab4_production_slice/layer_norm.py | corner | In mean_and_rstd every block behind the first is merged with COUNT = min(BLOCK, N_COLS) columns; the last block may have only N_COLS - start of them. Its mean is too small and its share too large, so rows longer than a block (4096 columns here) whose length is no multiple of it have a wrong mean and variance.
"""LayerNorm: each block has its own mean and squares, and they are merged block by block.

After Chan, Golub and LeVeque: one sweep, and no difference of large numbers.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op


@triton.jit
def moments(x_row, start, count, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of a block of `count` columns, and the sum of the squared differences from it."""
    cols = start + tl.arange(0, BLOCK)
    x = load(x_row, cols, N_COLS)
    mean = tl.sum(x, axis=0) / count
    d = tl.where(cols < N_COLS, x - mean, 0.0)
    return mean, tl.sum(d * d, axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    # A row narrower than the block has fewer columns than lanes.
    COUNT: tl.constexpr = BLOCK if BLOCK < N_COLS else N_COLS
    mean, squares = moments(x_row, 0, COUNT, N_COLS, BLOCK)
    for start in range(BLOCK, N_COLS, BLOCK):
        # `start` columns lie behind us, with their mean and squares.
        block_mean, block_squares = moments(x_row, start, COUNT, N_COLS, BLOCK)
        share = COUNT / (start + COUNT)
        delta = block_mean - mean
        mean += delta * share
        squares += block_squares + delta * delta * (start * share)
    variance = squares / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


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
        w = load(weight_ptr, cols, N_COLS)
        b = load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, (load(x_row, cols, N_COLS) - mean) * rstd * w + b)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    The result goes to `out` where one is given; rows of both may be any number of elements apart.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), 4096)
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=width
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
