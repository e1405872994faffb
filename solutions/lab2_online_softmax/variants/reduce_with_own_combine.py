"""EXPECT PASS from softmax_forward: each lane keeps its own (m, d), and tl.reduce merges the lanes."""

import torch
import triton
import triton.language as tl


@triton.jit
def merge(m_a, d_a, m_b, d_b):
    """The state of two sets of columns together; associative, so the order of the lanes is free."""
    m = tl.maximum(m_a, m_b)
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)


@triton.jit
def lanewise_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, LANES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr, y_row_ptr = x_ptr + row * stride_x, y_ptr + row * stride_y
    lanes = tl.arange(0, LANES)
    m = tl.full((LANES,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, n_cols, LANES):
        x = tl.load(x_row_ptr + start + lanes, mask=start + lanes < n_cols, other=-float("inf"))
        # One element is a state too: it is its own maximum, and its sum is exp(0).
        m, d = merge(m, d, x.to(tl.float32), tl.where(x == -float("inf"), 0.0, 1.0))
    m_row, d_row = tl.reduce((m, d), axis=0, combine_fn=merge)
    for start in range(0, n_cols, LANES):
        live = start + lanes < n_cols
        x = tl.load(x_row_ptr + start + lanes, mask=live, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + start + lanes, tl.exp(x - m_row) / d_row, mask=live)


def softmax_forward(x, *, out=None):
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    lanewise_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), LANES=64, num_warps=1)
    return out
