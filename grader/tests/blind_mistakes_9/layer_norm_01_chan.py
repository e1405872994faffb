# labs/lab4_production_slice/layer_norm.py | corner | blocks are merged by Chan's formula, but `share` counts every block with BLOCK columns: for a partly filled last block it must be count / (begin + count). Mean and variance are wrong where a row has more than one block (forward: more than 1024 columns; mean_and_rstd called by others: more than BLOCK) and its length is no multiple of the block
"""LayerNorm in one sweep for the statistics: mean and squared differences of each block, merged one by one."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

SPAN = 1024  # columns at a time


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps), by the parallel algorithm of Chan, Golub and LeVeque."""
    mean = 0.0
    spread = 0.0  # sum of squared differences from mean, of the columns so far
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        # this block by itself
        count = tl.minimum(N_COLS - begin, BLOCK)
        block_mean = tl.sum(x, axis=0) / count
        d = tl.where(cols < N_COLS, x - block_mean, 0.0)
        block_spread = tl.sum(d * d, axis=0)
        # its part of the columns so far, and the merge
        share = BLOCK / (begin + BLOCK)
        delta = block_mean - mean
        mean += delta * share
        spread += block_spread + delta * delta * begin * share
    return mean, tl.rsqrt(spread / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def layer_norm_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, n * load(w_ptr, cols, N_COLS) + load(b_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(SPAN, triton.next_power_of_2(n_cols))
    kernel = on(layer_norm_kernel, x)
    kernel[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block, num_warps=4
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
