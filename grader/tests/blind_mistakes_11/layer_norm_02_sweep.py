# labs/lab4_production_slice/layer_norm.py | wrong everywhere | one sweep with differences from the first element of the row; the variance is the mean of (x - first)^2 alone, `squares / N_COLS`, without the correction: must be squares / N_COLS - (mean - first)^2. Shows in every row whose first element is not its mean.
"""LayerNorm with the statistics of a row in one sweep."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps), by differences from the first element, which lies near the mean.

    The differences are small even where the numbers are large, so no digits are lost.
    """
    first = tl.load(x_row).to(tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        away = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - first, 0.0)
        sums += away
        squares += away * away
    mean = first + tl.sum(sums, axis=0) / N_COLS
    variance = tl.sum(squares, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def normalise_kernel(
    y_ptr, x_ptr, weight_ptr, bias_ptr, step_y, step_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = n * weight + bias."""
    i = tl.cast(tl.program_id(0), tl.int64)
    x_row = x_ptr + i * step_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        y = tl.fma(n, load(weight_ptr, cols, N_COLS), load(bias_ptr, cols, N_COLS))
        store(y_ptr + i * step_y, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm over the columns of x."""
    y = out
    if y is None:
        y = torch.empty_like(x)
    rows, cols = x.size(0), x.size(1)
    on(normalise_kernel, x)[(rows,)](
        y, x, weight, bias, y.stride(0), x.stride(0), eps, N_COLS=cols, BLOCK=min(block_of(cols), 8192)
    )
    return y


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """For torch.compile."""
    return layer_norm_forward(x, weight, bias, eps=eps)
