"""EXPECT PASS from softmax_forward and softmax_backward: persistent programs that walk over the rows."""

import torch
import triton
import triton.language as tl

RESIDENT = 528  # four programs for each of 132 multiprocessors


@triton.jit
def online_update(m, d, x):
    """(m, d) after one more block; a block of -inf leaves both as they are."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    safe = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)


@triton.jit
def walk_rows_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x_row = x_ptr + tl.cast(row, tl.int64) * stride_x
        y_row = y_ptr + tl.cast(row, tl.int64) * stride_y
        m, d = -float("inf"), 0.0
        for begin in range(0, n_cols, BLOCK):
            x = tl.load(x_row + begin + offs, mask=offs < n_cols - begin, other=-float("inf"))
            m, d = online_update(m, d, x.to(tl.float32))
        for begin in range(0, n_cols, BLOCK):
            x = tl.load(x_row + begin + offs, mask=offs < n_cols - begin, other=-float("inf"))
            y = tl.exp(x.to(tl.float32) - m) / d
            tl.store(y_row + begin + offs, y.to(x.dtype), mask=offs < n_cols - begin)


@triton.jit
def walk_gradients_kernel(g_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_g, stride_y, stride_dx,
                          BLOCK: tl.constexpr):  # fmt: skip
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        wide = tl.cast(row, tl.int64)
        s = 0.0
        for begin in range(0, n_cols, BLOCK):
            live = offs < n_cols - begin
            g = tl.load(g_ptr + wide * stride_g + begin + offs, mask=live, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + wide * stride_y + begin + offs, mask=live, other=0.0).to(tl.float32)
            s += tl.sum(g * y, axis=0)
        for begin in range(0, n_cols, BLOCK):
            live = offs < n_cols - begin
            g = tl.load(g_ptr + wide * stride_g + begin + offs, mask=live, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + wide * stride_y + begin + offs, mask=live, other=0.0).to(tl.float32)
            tl.store(dx_ptr + wide * stride_dx + begin + offs, g * y - y * s, mask=live)


def block_for(n_cols):
    return max(16, min(triton.next_power_of_2(n_cols), 4096))


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    walk_rows_kernel[(min(rows, RESIDENT),)](
        x, out, rows, cols, x.stride(0), out.stride(0), BLOCK=block_for(cols)
    )
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = dy.shape
    walk_gradients_kernel[(min(rows, RESIDENT),)](
        dy, y, out, rows, cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block_for(cols)
    )
    return out
