# labs/lab2_online_softmax/online_softmax.py | corner | In online_softmax_kernel the sums of even and odd blocks are joined with tl.exp(m_odd - m_even) on d_odd instead of tl.exp(m_odd - m). Rows of more than one block whose maximum lies in an odd-numbered block get a d that is too large (far too large, up to inf), so y is too small; other rows are right.
"""Softmax over rows of any length: even and odd blocks of a row are followed separately."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048  # two such blocks are in flight at a time
BACKWARD_BLOCK = 8192


@triton.jit
def columns(row_ptr, cols, n_cols, other):
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def fold(m, d, x):
    """Maximum and sum after one more block."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    # nothing finite yet: any finite number will do as the shift
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Two independent chains (even blocks, odd blocks), so that one need not wait for the other."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    m_even = -float("inf")
    d_even = 0.0
    m_odd = -float("inf")
    d_odd = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        x_even = columns(x_row_ptr, start + lane, n_cols, -float("inf"))
        x_odd = columns(x_row_ptr, start + BLOCK + lane, n_cols, -float("inf"))
        m_even, d_even = fold(m_even, d_even, x_even)
        m_odd, d_odd = fold(m_odd, d_odd, x_odd)

    # the two chains together
    m = tl.maximum(m_even, m_odd)
    d = d_even * tl.exp(m_even - m) + d_odd * tl.exp(m_odd - m_even)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = columns(x_row_ptr, cols, n_cols, -float("inf"))
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = columns(dy_row_ptr, start + lane, n_cols, 0.0)
        y = columns(y_row_ptr, start + lane, n_cols, 0.0)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dy = columns(dy_row_ptr, cols, n_cols, 0.0)
        y = columns(y_row_ptr, cols, n_cols, 0.0)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    if out is None:
        out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
