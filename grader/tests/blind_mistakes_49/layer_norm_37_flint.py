# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) In `mean_and_rstd`, `tl.rsqrt(tl.maximum(variance, tl.cast(eps, tl.float32)))` should add eps: `variance + eps`; shows in rows of small variance (narrow) and for eps = 1. (2) In `layer_norm_kernel`, `bias = load(bias_ptr, lanes, N_COLS)` should take `cols`: from the second block on (rows of more than 8192 columns) the bias of the first block is added.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

WIDE = 8192  # columns of a block at most


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    lanes = tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + lanes, N_COLS), axis=0)
    mean = total / N_COLS
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        difference = load(x_row, cols, N_COLS) - mean
        squares += tl.sum(tl.where(cols < N_COLS, difference * difference, 0.0), axis=0)
    variance = squares / N_COLS
    return mean, tl.rsqrt(tl.maximum(variance, tl.cast(eps, tl.float32)))


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
    lanes = tl.arange(0, BLOCK)
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, lanes, N_COLS)
        store(y_row, cols, N_COLS, (x - mean) * rstd * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x,
        weight,
        bias,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), WIDE),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
