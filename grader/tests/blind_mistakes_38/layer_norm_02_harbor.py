# labs/lab4_production_slice/layer_norm.py | corner | In mean_and_rstd, `share = BLOCK / (start + BLOCK)` counts the last block as BLOCK columns even where the row ends within it, so that block gets too much weight in the mean and in the variance. It should be `size / (start + size)`, with the number of columns that the block really has. Shows only in rows longer than one block (more than 2048 columns) whose length is no multiple of 2048; shorter rows and whole blocks are right.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The row is read once. Each block has a mean and a sum of squared differences of its own, and is merged with
    what was seen before it as Chan, Golub and LeVeque do: the squared distance of the two means comes on top.
    """
    mean = 0.0
    spread = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        size = tl.minimum(N_COLS - start, BLOCK)
        x = load(x_row, cols, N_COLS)
        block_mean = tl.sum(x, axis=0) / size
        off = tl.where(cols < N_COLS, x - block_mean, 0.0)
        share = BLOCK / (start + BLOCK)
        step = block_mean - mean
        spread += tl.sum(off * off, axis=0) + step * step * share * start
        mean += step * share
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(spread / N_COLS + tl.cast(eps, tl.float32))


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
        y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    n_rows, n_cols = x.shape
    out = torch.empty_like(x) if out is None else out
    on(layer_norm_kernel, x)[(n_rows,)](
        x,
        weight,
        bias,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), 2048),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
