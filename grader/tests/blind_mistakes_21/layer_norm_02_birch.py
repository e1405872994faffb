# labs/lab4_production_slice/layer_norm.py | corner | mean_and_rstd masks the differences of a block by `lane < N_COLS`, should be `lane < left` (N_COLS - start): in rows of several blocks whose last one is partial, lanes past the end each add mean * mean to the squares, so rstd is too small (visible where the mean is not near 0).
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MOST = 2048  # columns of a block: short blocks leave registers for more programs on an SM


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The start of the row moves on with the blocks, and `left` columns are left from there.
    """
    lane = tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        left = N_COLS - start
        total += tl.sum(load(x_row + start, lane, left), axis=0)
    mean = total / N_COLS

    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        left = N_COLS - start
        difference = load(x_row + start, lane, left) - mean
        difference = tl.where(lane < N_COLS, difference, 0.0)
        squares += tl.sum(difference * difference, axis=0)
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
    lane = tl.arange(0, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        left = N_COLS - start
        x = load(x_row + start, lane, left)
        weight = load(weight_ptr + start, lane, left)
        bias = load(bias_ptr + start, lane, left)
        store(y_row + start, lane, left, (x - mean) * rstd * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), MOST)
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
