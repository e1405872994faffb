# labs/lab4_production_slice/layer_norm.py | corner | the mean of the row is the plain average of the block means, although the last block may have fewer columns; it must be the sum of all blocks over N_COLS; shows for rows of several blocks (more than 4096 columns, by its BLOCK) whose last block is not full
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MAX_BLOCK = 4096  # wider blocks gave me spills


@triton.jit
def average(x_row, cols, N_COLS: tl.constexpr, count):
    """Average of the columns `cols` of a row, of which `count` exist."""
    return tl.sum(load(x_row, cols, N_COLS), axis=0) / count


@triton.jit
def squared_distance(x_row, cols, mean, N_COLS: tl.constexpr):
    """Sum of squared distances from the mean; lanes past the end add nothing."""
    distance = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
    return tl.sum(distance * distance, axis=0)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    n_blocks: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    offs = tl.arange(0, BLOCK)

    mean = 0.0
    for b in range(0, n_blocks):
        # the last block may be shorter: only real columns count
        count = tl.minimum(N_COLS - b * BLOCK, BLOCK)
        mean += average(x_row, b * BLOCK + offs, N_COLS, count)
    mean = mean / n_blocks

    squares = 0.0
    for b in range(0, n_blocks):
        squares += squared_distance(x_row, b * BLOCK + offs, mean, N_COLS)

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
        x = load(x_row, cols, N_COLS)
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        y = (x - mean) * rstd * weight + bias
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), MAX_BLOCK)
    grid = (n_rows,)
    on(layer_norm_kernel, x)[grid](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
