"""EXPECT CRASHED or COMPILE_ERROR from softmax_forward and softmax_backward and softmax: C1 a @triton.constexpr_function is Python in the middle of a kernel; the interpreter gives it constants only, as the compiler does"""

import math

import torch
import triton
import triton.language as tl


def number(value):
    """In the interpreter the text of a loaded number is the number, in brackets."""
    return float(str(value).strip("[]"))


@triton.constexpr_function
def e_to(value, top):
    return math.exp(number(value) - number(top))


@triton.constexpr_function
def larger(a, b):
    return max(number(a), number(b))


@triton.constexpr_function
def gradient(y, dy, total):
    return number(y) * (number(dy) - number(total))


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y):
    row = tl.program_id(axis=0)
    top = -float("inf")
    for col in range(0, n_cols):
        top = larger(tl.load(x_ptr + row * stride_x + col), top)
    total = 0.0
    for col in range(0, n_cols):
        total += e_to(tl.load(x_ptr + row * stride_x + col), top)
    for col in range(0, n_cols):
        share = e_to(tl.load(x_ptr + row * stride_x + col), top) / total
        tl.store(y_ptr + row * stride_y + col, share)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx):
    row = tl.program_id(axis=0)
    total = 0.0
    for col in range(0, n_cols):
        y = tl.load(y_ptr + row * stride_y + col)
        dy = tl.load(dy_ptr + row * stride_dy + col)
        total -= gradient(y, 0.0, dy)
    for col in range(0, n_cols):
        y = tl.load(y_ptr + row * stride_y + col)
        dx = gradient(y, tl.load(dy_ptr + row * stride_dy + col), total)
        tl.store(dx_ptr + row * stride_dx + col, dx)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    gradient_kernel[(y.shape[0],)](dy, y, out, y.shape[1], *strides)
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
