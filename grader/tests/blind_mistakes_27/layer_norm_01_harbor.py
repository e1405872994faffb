# labs/lab4_production_slice/layer_norm.py | wrong everywhere | layer_norm_kernel adds the bias before it multiplies by the weight (`y += bias` stands before `y *= weight`), so y = (n + bias) * weight; it is off by bias * (weight - 1) in every case of layer_norm_forward, and so in layer_norm; it should be n * weight + bias, that is, multiply first and then add; mean_and_rstd is right
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
    lane = tl.arange(0, BLOCK)
    total = 0.0
    for first in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, first + lane, N_COLS), axis=0)
    mean = total / N_COLS

    squares = 0.0
    for first in range(0, N_COLS, BLOCK):
        cols = first + lane
        # A lane past the end holds 0, and 0 - mean must not count.
        off = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(off * off, axis=0)
    variance = squares / N_COLS

    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """LayerNorm of row i in program i; x and y have row strides of their own, columns are contiguous."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for first in range(0, N_COLS, BLOCK):
        cols = first + lane
        y = (load(x_row, cols, N_COLS) - mean) * rstd
        y += load(bias_ptr, cols, N_COLS)
        y *= load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of each row of x, (n_rows, n_cols), into `out` where one is given."""
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
