"""EXPECT PASS from softmax_forward: 16 states (m, d) side by side, merged at the end by tl.reduce."""

import torch
import triton
import triton.language as tl


@triton.jit
def merge(m_a, d_a, m_b, d_b):
    """The state of two sets of columns together; associative, so the order of the sets is free."""
    m = tl.maximum(m_a, m_b)
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)


@triton.jit
def many_states_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, STATES: tl.constexpr, WIDTH: tl.constexpr):
    """A block of columns is a tile of (STATES, WIDTH); every line of it feeds a state of its own."""
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr, y_row_ptr = x_ptr + row * stride_x, y_ptr + row * stride_y
    places = tl.arange(0, STATES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    m = tl.full((STATES,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((STATES,), dtype=tl.float32)
    for start in range(0, n_cols, STATES * WIDTH):
        x = tl.load(x_row_ptr + start + places, mask=start + places < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        m_line = tl.max(x, axis=1)
        finite = tl.where(m_line == -float("inf"), 0.0, m_line)
        m, d = merge(m, d, m_line, tl.sum(tl.exp(x - finite[:, None]), axis=1))
    m_row, d_row = tl.reduce((m, d), axis=0, combine_fn=merge)
    for start in range(0, n_cols, STATES * WIDTH):
        live = start + places < n_cols
        x = tl.load(x_row_ptr + start + places, mask=live, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + start + places, tl.exp(x - m_row) / d_row, mask=live)


def softmax_forward(x, *, out=None):
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    many_states_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), STATES=16, WIDTH=256)
    return out
