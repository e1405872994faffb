# labs/lab4_production_slice/layer_norm.py | right | unusual: one sweep for the statistics, block means and block sums of squares merged as Chan et al. do; programs walk over several rows; the second sweep goes from the last block to the first
"""LayerNorm over rows of any length, and the same as an operator.

The statistics need one sweep only: every block gives its own mean and its own sum of squared differences,
and two such pairs can be merged exactly (Chan, Golub, LeVeque).
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 4096  # at most; a program takes every PROGRAMS-th row


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    lanes = tl.arange(0, BLOCK)
    mean = 0.0
    m2 = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        here = tl.minimum(N_COLS - start, BLOCK)  # columns of this block
        seen = start + here
        share = here / seen  # of this block in the columns so far, 1 in the first block

        values = load(x_row, cols, N_COLS)
        block_mean = tl.sum(values, axis=0) / here
        diff = tl.where(cols < N_COLS, values - block_mean, 0.0)

        gap = tl.where(seen > here, block_mean - mean, 0.0)
        mean = tl.where(seen > here, mean + gap * share, block_mean)
        m2 += tl.sum(diff * diff, axis=0) + gap * gap * (share * start)
    return mean, tl.rsqrt(m2 / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i has rows i, i + programs, ..."""
    blocks: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    lanes = tl.arange(0, BLOCK)
    for i in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(i, tl.int64)
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        # backwards: the block that was read last is still in the cache
        for k in range(0, blocks):
            cols = (blocks - 1 - k) * BLOCK + lanes
            n = (load(x_row, cols, N_COLS) - mean) * rstd
            y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
            store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(min(n_rows, PROGRAMS),)]
    launch(
        x, weight, bias, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
