# labs/lab2_online_softmax/online_softmax.py | contract | softmax_forward without out returns `torch.empty_strided(x.size(), x.stride(), ...)`, a matrix padded like x; the README asks for a new contiguous matrix (torch.empty(x.shape, ...)). All numbers are right; shows where x has padded rows and no out is given, and in the result of softmax.
"""Softmax over rows, its gradient, and both together; the result is laid out like the input."""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def load_row(ptr, cols, n_cols, other):
    return tl.load(ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr = x_ptr + row * stride_x
    y_ptr = y_ptr + row * stride_y
    blocks = tl.cdiv(n_cols, BLOCK)
    m = -float("inf")
    d = 0.0
    for i in range(blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = load_row(x_ptr, cols, n_cols, -float("inf"))
        before = m
        m = tl.maximum(before, tl.max(x, axis=0))
        if m != -float("inf"):
            d = d * tl.exp(before - m) + tl.sum(tl.exp(x - m), axis=0)
    for i in range(blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        y = tl.exp(load_row(x_ptr, cols, n_cols, -float("inf")) - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr = dy_ptr + row * stride_dy
    y_ptr = y_ptr + row * stride_y
    dx_ptr = dx_ptr + row * stride_dx
    blocks = tl.cdiv(n_cols, BLOCK)
    s = 0.0
    for i in range(blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        s += tl.sum(load_row(dy_ptr, cols, n_cols, 0.0) * load_row(y_ptr, cols, n_cols, 0.0), axis=0)
    for i in range(blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        dx = load_row(y_ptr, cols, n_cols, 0.0) * (load_row(dy_ptr, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.size(), dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
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
