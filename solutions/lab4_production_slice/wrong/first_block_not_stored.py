"""EXPECT WRONG/UNWRITTEN from rms_norm_forward, hint 1: the second loop begins at the second block"""

import torch
import triton
import triton.language as tl
from rows import block_of, load, store


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for start in range(BLOCK, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        normalised = load(x_row, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, normalised * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps=1e-6, out=None):
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    strides = x.stride(0), out.stride(0)
    rms_norm_kernel[(n_rows,)](x, weight, out, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out
