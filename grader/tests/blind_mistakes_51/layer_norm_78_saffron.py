# labs/lab4_production_slice/layer_norm.py | error | In `mean_and_rstd`, `squares = 0` is an int32 that the loop makes fp32 (`squares += tl.sum(...)`): Triton does not compile a loop-carried variable that changes its type; it should be `0.0`. COMPILE_ERROR in all cases where the kernel is compiled; in the interpreter the numbers are right.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(sums, axis=0) / N_COLS
    squares = 0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        off = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(off * off, axis=0)
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def affine(values, weight_ptr, bias_ptr, cols, N_COLS: tl.constexpr):
    """values * weight + bias, by columns."""
    return tl.fma(values, load(weight_ptr, cols, N_COLS), load(bias_ptr, cols, N_COLS))


@triton.autotune(configs=WARPS[1:], key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, affine(n, weight_ptr, bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
