# lab2/online_softmax.py | honest | - | unusual: full blocks are read without a mask and only the tail block with one; a block is split by tl.split into even and odd columns, each with its own pair (m, d), the pairs are merged by a helper that returns a tuple; backward walks with pointers that are moved
"""Softmax with two pairs (m, d) per row: even and odd columns."""

import torch
import triton
import triton.language as tl


@triton.jit
def merge(m1, d1, m2, d2):
    m = tl.maximum(m1, m2)
    a = tl.where(m1 == m, 1.0, tl.exp(m1 - m))
    b = tl.where(m2 == m, 1.0, tl.exp(m2 - m))
    return m, d1 * a + d2 * b


@triton.jit
def fold(m, d, x):
    top = tl.max(x, 0)
    p = tl.where(x == -float("inf"), 0.0, tl.exp(x - top))
    return merge(m, d, top, tl.sum(p, 0))


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    full = n_cols // BLOCK * BLOCK
    m0 = -float("inf")
    m1 = -float("inf")
    d0 = 0.0
    d1 = 0.0
    for start in range(0, full, BLOCK):
        x = tl.load(x_ptr + start + lanes).to(tl.float32)
        even, odd = tl.split(tl.reshape(x, (BLOCK // 2, 2)))
        m0, d0 = fold(m0, d0, even)
        m1, d1 = fold(m1, d1, odd)
    rest = lanes < n_cols - full
    last = tl.load(x_ptr + full + lanes, mask=rest, other=-float("inf")).to(tl.float32)
    even, odd = tl.split(tl.reshape(last, (BLOCK // 2, 2)))
    m0, d0 = fold(m0, d0, even)
    m1, d1 = fold(m1, d1, odd)
    m, d = merge(m0, d0, m1, d1)
    for start in range(0, full, BLOCK):
        x = tl.load(x_ptr + start + lanes).to(tl.float32)
        tl.store(y_ptr + start + lanes, tl.exp(x - m) / d)
    tl.store(y_ptr + full + lanes, tl.exp(last - m) / d, mask=rest)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    a = dy_ptr + row * stride_dy + lanes
    b = y_ptr + row * stride_y + lanes
    c = dx_ptr + row * stride_dx + lanes
    s = 0.0
    left = n_cols
    while left > 0:
        g = tl.load(a, mask=lanes < left, other=0.0).to(tl.float32)
        s += tl.sum(g * tl.load(b, mask=lanes < left, other=0.0).to(tl.float32), 0)
        a += BLOCK
        b += BLOCK
        left -= BLOCK
    left = n_cols
    a = dy_ptr + row * stride_dy + lanes
    b = y_ptr + row * stride_y + lanes
    while left > 0:
        g = tl.load(a, mask=lanes < left, other=0.0).to(tl.float32)
        y = tl.load(b, mask=lanes < left, other=0.0).to(tl.float32)
        tl.store(c, (g - s) * y, mask=lanes < left)
        a += BLOCK
        b += BLOCK
        c += BLOCK
        left -= BLOCK


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.shape)
    block = 1024 if x.size(1) > 512 else 128
    forward_kernel[(x.size(0),)](x, out, x.size(1), x.stride(0), out.stride(0), block)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = dy.new_empty(dy.shape)
    block = 512 if y.size(1) > 256 else 128
    backward_kernel[(y.size(0),)](dy, y, out, y.size(1), dy.stride(0), y.stride(0), out.stride(0), block)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
