# lab2/online_softmax.py | two | (1) forward_kernel, sweep of the sum: get() fills lanes past the end with 0 there (fill=0.0), so each of them adds exp(0 - m) to d; (2) OnlineSoftmax.backward hands dy over as autograd gives it, without contiguous(), while the kernel assumes stride 1 between columns | (1) "A lane past the end of the row must leave both unchanged", n_cols that is no power of two or no multiple of 1024: rows sum to less than 1; (2) "autograd may hand over a gradient in any layout", the gradient of softmax() for expanded (as from sum()) or transposed gradients: wrong values and reads out of bounds
"""Softmax: maximum, sum, quotient."""

import torch
import triton
import triton.language as tl

SIZE = 1024


@triton.jit
def get(p, c, n_cols, fill):
    return tl.load(p + c, mask=c < n_cols, other=fill).to(tl.float32)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    xr = x_ptr + row * stride_x
    yr = y_ptr + row * stride_y
    ar = tl.arange(0, SIZE)
    m = -float("inf")
    for c in range(0, n_cols, SIZE):
        m = tl.maximum(m, tl.max(get(xr, c + ar, n_cols, -float("inf")), axis=0))
    d = 0.0
    for c in range(0, n_cols, SIZE):
        d += tl.sum(tl.exp(get(xr, c + ar, n_cols, 0.0) - m), axis=0)
    for c in range(0, n_cols, SIZE):
        v = tl.exp(get(xr, c + ar, n_cols, 0.0) - m) / d
        tl.store(yr + c + ar, v.to(y_ptr.dtype.element_ty), mask=c + ar < n_cols)


@triton.jit
def backward_kernel(g_ptr, y_ptr, o_ptr, n_cols, stride_g, stride_y, stride_o, SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    gr = g_ptr + row * stride_g
    yr = y_ptr + row * stride_y
    outr = o_ptr + row * stride_o
    ar = tl.arange(0, SIZE)
    s = 0.0
    for c in range(0, n_cols, SIZE):
        s += tl.sum(get(gr, c + ar, n_cols, 0.0) * get(yr, c + ar, n_cols, 0.0), axis=0)
    for c in range(0, n_cols, SIZE):
        v = get(yr, c + ar, n_cols, 0.0) * (get(gr, c + ar, n_cols, 0.0) - s)
        tl.store(outr + c + ar, v.to(o_ptr.dtype.element_ty), mask=c + ar < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    size = min(SIZE, triton.next_power_of_2(cols))
    forward_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), SIZE=size)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = dy.shape
    size = min(SIZE, triton.next_power_of_2(cols))
    steps = [t.stride(0) for t in (dy, y, out)]
    backward_kernel[(rows,)](dy, y, out, cols, *steps, SIZE=size)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above, tied together."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
