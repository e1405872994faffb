# lab2/online_softmax.py | error | backward kernel: s = 0 is an integer before the loop and s += tl.sum(...) makes it fp32, a loop-carried variable must keep its type, so the kernel does not compile (shows only in compilation or on a GPU, the interpreter computes right values) | "s = 0.0"; softmax_backward and the gradient of softmax() on a GPU, all inputs
"""Softmax: rows on the first grid axis."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 4096


@triton.jit
def load_row_block(base, start, n_cols, fill, BLOCK: tl.constexpr):
    offs = start + tl.arange(0, BLOCK)
    return tl.load(base + offs, mask=offs < n_cols, other=fill).to(tl.float32)


@triton.jit
def store_row_block(base, start, n_cols, value, BLOCK: tl.constexpr):
    offs = start + tl.arange(0, BLOCK)
    tl.store(base + offs, value.to(base.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_row_block(x_ptr, start, n_cols, -float("inf"), BLOCK)
        m_new = tl.maximum(m, tl.max(x))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift))
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = load_row_block(x_ptr, start, n_cols, -float("inf"), BLOCK)
        store_row_block(y_ptr, start, n_cols, tl.exp(x - m) / d, BLOCK)


@triton.jit
def softmax_grad_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    s = 0
    for start in range(0, n_cols, BLOCK):
        dy = load_row_block(dy_ptr, start, n_cols, 0.0, BLOCK)
        y = load_row_block(y_ptr, start, n_cols, 0.0, BLOCK)
        s += tl.sum(dy * y)
    for start in range(0, n_cols, BLOCK):
        dy = load_row_block(dy_ptr, start, n_cols, 0.0, BLOCK)
        y = load_row_block(y_ptr, start, n_cols, 0.0, BLOCK)
        store_row_block(dx_ptr, start, n_cols, y * (dy - s), BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    block = min(MAX_BLOCK, triton.next_power_of_2(x.shape[1]))
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=block)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    block = min(MAX_BLOCK, triton.next_power_of_2(dy.shape[1]))
    softmax_grad_kernel[(dy.shape[0],)](
        dy, y, out, dy.shape[1], dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
