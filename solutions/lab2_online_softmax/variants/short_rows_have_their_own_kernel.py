"""EXPECT PASS from softmax_forward and softmax_backward: one block for a short row, a loop for a long one."""

import torch
import triton
import triton.language as tl

LONGEST_BLOCK = 8192
CHUNK = 4096


@triton.jit
def short_forward(x_ptr, out_ptr, n_cols, sx, so, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * sx + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x))
    tl.store(out_ptr + row * so + cols, e / tl.sum(e), mask=cols < n_cols)


@triton.jit
def long_forward(x_ptr, out_ptr, n_cols, sx, so, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * sx
    out_ptr += row * so
    m = float("-inf")
    d = 0.0
    for first in tl.range(0, n_cols, CHUNK):
        cols = first + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        best = tl.max(x)
        if best > m:  # only then does the old sum change its scale; never true for a block of -inf
            d *= tl.exp(m - best)
            m = best
        if m > float("-inf"):
            d += tl.sum(tl.exp(x - m))
    scale = 1.0 / d
    for first in tl.range(0, n_cols, CHUNK):
        cols = first + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        tl.store(out_ptr + cols, tl.exp(x - m) * scale, mask=cols < n_cols)


@triton.jit
def short_backward(dy_ptr, y_ptr, out_ptr, n_cols, sd, sy, so, BLOCK: tl.constexpr):
    """Both blocks are read once and stay in registers between the sum and the result."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + row * sd + cols, mask=cols < n_cols, other=0).to(tl.float32)
    y = tl.load(y_ptr + row * sy + cols, mask=cols < n_cols, other=0).to(tl.float32)
    tl.store(out_ptr + row * so + cols, y * (dy - tl.sum(y * dy)), mask=cols < n_cols)


@triton.jit
def long_backward(dy_ptr, y_ptr, out_ptr, n_cols, sd, sy, so, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dot = 0.0
    for sweep in tl.static_range(2):
        for first in range(0, n_cols, CHUNK):
            cols = first + tl.arange(0, CHUNK)
            dy = tl.load(dy_ptr + row * sd + cols, mask=cols < n_cols, other=0).to(tl.float32)
            y = tl.load(y_ptr + row * sy + cols, mask=cols < n_cols, other=0).to(tl.float32)
            if sweep == 0:
                dot += tl.sum(dy * y)
            else:
                tl.store(out_ptr + row * so + cols, y * (dy - dot), mask=cols < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    if n_cols <= LONGEST_BLOCK:
        block = triton.next_power_of_2(n_cols)
        short_forward[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block)
    else:
        long_forward[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), CHUNK=CHUNK)
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    if n_cols <= LONGEST_BLOCK:
        block = triton.next_power_of_2(n_cols)
        short_backward[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=8)
    else:
        long_backward[(n_rows,)](dy, y, out, n_cols, *strides, CHUNK=CHUNK, num_warps=8)
    return out
