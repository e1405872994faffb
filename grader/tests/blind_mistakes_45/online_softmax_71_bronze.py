# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `merge`, the combine function of `tl.reduce`, `scale_b = tl.exp(m_a - shift)` has the wrong operand; it should be `tl.exp(m_b - shift)`. The sum d of the row is wrong in nearly all cases with more than one column (not where all lanes have the same maximum, as in constant rows).
"""Row softmax with one maximum and one sum per lane, which tl.reduce merges, and its gradient."""

import torch
import triton
import triton.language as tl

WIDTH = 512  # lanes of the forward kernel
CHUNK = 4096  # columns of the backward kernel


@triton.jit
def merge(m_a, d_a, m_b, d_b):
    """Maximum and sum of two sets of columns, from the maximum and the sum of each."""
    m = tl.maximum(m_a, m_b)
    shift = tl.where(m == -float("inf"), 0.0, m)
    scale_a = tl.exp(m_a - shift)
    scale_b = tl.exp(m_a - shift)
    return m, d_a * scale_a + d_b * scale_b


@triton.jit
def read(row_ptr, cols, n_cols, other):
    """Columns of a row in fp32, and `other` behind its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, WIDTH: tl.constexpr):
    """Lane j of program i sees columns j, j + WIDTH, j + 2 * WIDTH, ... of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lane = tl.arange(0, WIDTH)
    m_lane = tl.full((WIDTH,), -float("inf"), dtype=tl.float32)
    d_lane = tl.zeros((WIDTH,), dtype=tl.float32)
    for start in range(0, n_cols, WIDTH):
        x = read(x_ptr, start + lane, n_cols, -float("inf"))
        m_new = tl.maximum(m_lane, x)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d_lane = d_lane * tl.exp(m_lane - shift) + tl.exp(x - shift)
        m_lane = m_new
    m, d = tl.reduce((m_lane, d_lane), axis=0, combine_fn=merge)
    for start in range(0, n_cols, WIDTH):
        cols = start + lane
        y = tl.exp(read(x_ptr, cols, n_cols, -float("inf")) - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, CHUNK: tl.constexpr):
    """dx = y * (dy - s) with s = sum of y * dy; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    s = 0.0
    for start in range(0, n_cols, CHUNK):
        cols = start + tl.arange(0, CHUNK)
        s += tl.sum(read(dy_ptr, cols, n_cols, 0.0) * read(y_ptr, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, CHUNK):
        cols = start + tl.arange(0, CHUNK)
        dx = read(y_ptr, cols, n_cols, 0.0) * (read(dy_ptr, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); columns contiguous, any row stride."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), WIDTH=width, num_warps=2)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y; columns contiguous, any row stride."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    chunk = min(triton.next_power_of_2(n_cols), CHUNK)
    strides = dy.stride(0), y.stride(0), out.stride(0)
    backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, CHUNK=chunk, num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above as one that autograd knows."""

    @staticmethod
    def forward(ctx, x):
        """Return y, and keep it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx."""
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
