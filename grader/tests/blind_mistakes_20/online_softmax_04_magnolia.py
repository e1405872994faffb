# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In two_stream_kernel the left stream is masked with `left < n_cols` in place of `left < half`, so its last block runs into the second half and those columns are counted twice in d (unless half is a multiple of BLOCK). (2) In gradient_kernel dx of the ragged end is stored with an s that holds only the ragged end's own products, before the loop adds the full blocks: the last columns are wrong if the row is longer than one block and no multiple of it; the store belongs after the loop.
"""Softmax; the first sweep reads both halves of a row at the same time, with a maximum and a sum for each."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 1024


@triton.jit
def absorb(m, d, x):
    """The pair (m, d) after the block x."""
    top = tl.maximum(m, tl.max(x, axis=0))
    zero = tl.where(top == -float("inf"), 0.0, top)
    return top, d * tl.exp(m - zero) + tl.sum(tl.exp(x - zero), axis=0)


@triton.jit
def two_stream_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    half = (n_cols + 1) // 2
    m_left = -float("inf")
    d_left = 0.0
    m_right = -float("inf")
    d_right = 0.0
    for start in range(0, half, BLOCK):
        left = start + lane
        right = half + left
        a = tl.load(x_row + left, mask=left < n_cols, other=-float("inf")).to(tl.float32)
        b = tl.load(x_row + right, mask=right < n_cols, other=-float("inf")).to(tl.float32)
        m_left, d_left = absorb(m_left, d_left, a)
        m_right, d_right = absorb(m_right, d_right, b)

    # one of the two may be -inf still, not both
    m = tl.maximum(m_left, m_right)
    d = d_left * tl.exp(m_left - m) + d_right * tl.exp(m_right - m)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    full = (n_cols // BLOCK) * BLOCK

    # the ragged end, the only place that needs a mask
    end = full + lane
    inside = end < n_cols
    g = tl.load(dy_row + end, mask=inside, other=0.0).to(tl.float32)
    p = tl.load(y_row + end, mask=inside, other=0.0).to(tl.float32)
    s = tl.sum(g * p, axis=0)
    tl.store(dx_row + end, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=inside)

    # the full blocks
    for start in range(0, full, BLOCK):
        cols = start + lane
        g = tl.load(dy_row + cols).to(tl.float32)
        p = tl.load(y_row + cols).to(tl.float32)
        s += tl.sum(g * p, axis=0)
    for start in range(0, full, BLOCK):
        cols = start + lane
        g = tl.load(dy_row + cols).to(tl.float32)
        p = tl.load(y_row + cols).to(tl.float32)
        tl.store(dx_row + cols, (p * (g - s)).to(dx_ptr.dtype.element_ty))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = max(16, min(FORWARD_BLOCK, triton.next_power_of_2(triton.cdiv(n_cols, 2))))
    two_stream_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = max(16, min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols)))
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    gradient_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=4)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
