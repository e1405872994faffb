# labs/lab4_production_slice/layer_norm.py | corner | merge leaves out the term delta * delta * seen * count / both when it joins the squares of two parts, so the spread between blocks is missing in the variance. Shows in rows of more than 512 columns (several blocks) whose block means differ.
"""LayerNorm with one sweep for the statistics: means and sums of squares of the blocks are merged."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op


@triton.jit
def merge(seen, mean, squares, x, cols, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Statistics of the first `seen` columns and of the block x, which has the next ones, put together."""
    count = tl.minimum(BLOCK, N_COLS - seen)
    block_mean = tl.sum(x, axis=0) / count
    apart = tl.where(cols < N_COLS, x - block_mean, 0.0)
    block_squares = tl.sum(apart * apart, axis=0)
    both = seen + count
    delta = block_mean - mean
    mean += delta * count / both
    squares += block_squares
    return mean, squares


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    mean = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mean, squares = merge(start, mean, squares, load(x_row, cols, N_COLS), cols, N_COLS, BLOCK)
    return mean, 1.0 / tl.sqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        scale = load(weight_ptr, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, (load(x_row, cols, N_COLS) - mean) * scale + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    on(layer_norm_kernel, x)[(x.shape[0],)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps,
        N_COLS=x.shape[1], BLOCK=min(512, block_of(x.shape[1])), num_warps=4,
    )  # fmt: skip
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
