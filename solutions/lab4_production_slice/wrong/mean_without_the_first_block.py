"""EXPECT WRONG/MISMATCH from layer_norm_forward, hint 4: the loop of the mean begins at the second block"""

import torch
import triton
import triton.language as tl
from rows import block_of, load, store


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(BLOCK, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        difference = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(difference * difference, axis=0)
    variance = squares / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        normalised = (load(x_row, cols, N_COLS) - mean) * rstd
        store(y_row, cols, N_COLS, normalised * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps=1e-5, out=None):
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    strides = x.stride(0), out.stride(0)
    layer_norm_kernel[(n_rows,)](x, weight, bias, out, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out
