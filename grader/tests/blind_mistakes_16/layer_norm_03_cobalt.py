# labs/lab4_production_slice/layer_norm.py | corner | In layer_norm_kernel the row number of the grid-stride loop is int32, so `row * stride_x` and `row * stride_y` overflow where a row begins 2^31 or more elements after the start. It should be converted first, e.g. tl.cast(row, tl.int64).
"""LayerNorm with a fixed number of programs that walk over the rows."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 8192


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        diff = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(diff * diff, axis=0)
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def write_row(x_row, weight_ptr, bias_ptr, y_row, mean, rstd, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = (load(x_row, cols, N_COLS) - mean) * rstd
        y = y * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


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
    """Each program takes every num_programs-th row."""
    for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        write_row(x_row, weight_ptr, bias_ptr, y_row, mean, rstd, N_COLS, BLOCK)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (min(n_rows, PROGRAMS),)
    on(layer_norm_kernel, x)[grid](
        x, weight, bias, out, n_rows, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
