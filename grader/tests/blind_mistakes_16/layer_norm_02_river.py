# labs/lab4_production_slice/layer_norm.py | corner | In mean_and_rstd the mean is the plain average of the means of the blocks (`mean += tl.sum(x) / width`, then `mean / BLOCKS`), so a shorter last block counts as much as a whole one. Wrong for rows longer than a block (1024 here) that are not whole blocks; it should add up the sums of x and divide once by N_COLS.
"""LayerNorm, one row per program, blocks of at most 1024 columns."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MAX_BLOCK = 1024


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return mean and 1 / sqrt(variance + eps) of a row of N_COLS numbers."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        width = tl.sum((cols < N_COLS).to(tl.float32), axis=0)
        x = load(x_row, cols, N_COLS)
        mean += tl.sum(x, axis=0) / width
    mean = mean / BLOCKS

    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        centred = tl.where(cols < N_COLS, x - mean, 0.0)
        squares += tl.sum(centred * centred, axis=0)
    variance = squares / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i normalises row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        gain = load(weight_ptr, cols, N_COLS)
        offset = load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, (x - mean) * rstd * gain + offset)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    on(layer_norm_kernel, x)[(rows,)](
        x,
        weight,
        bias,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=cols,
        BLOCK=min(block_of(cols), MAX_BLOCK),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
