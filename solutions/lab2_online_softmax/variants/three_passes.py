"""EXPECT PASS from softmax_forward and softmax_backward and softmax: maximum, sum, result in three passes."""

import torch
import triton
import triton.language as tl

BLOCK = tl.constexpr(4096)
MINUS_INF = tl.constexpr(-float("inf"))


@triton.jit
def three_pass_softmax(x_ptr, y_ptr, n_cols, x_stride, y_stride):
    """No sum is ever rescaled: the maximum of the row is known before the first exp."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)

    highest = tl.full((BLOCK,), MINUS_INF, tl.float32)
    for col in range(0, n_cols, BLOCK):
        part = tl.load(x_ptr + row * x_stride + col + lane, mask=col + lane < n_cols, other=MINUS_INF)
        highest = tl.maximum(highest, part.to(tl.float32))
    peak = tl.max(highest, axis=0)

    sums = tl.zeros((BLOCK,), tl.float32)
    for col in range(0, n_cols, BLOCK):
        part = tl.load(x_ptr + row * x_stride + col + lane, mask=col + lane < n_cols, other=MINUS_INF)
        sums += tl.exp(part.to(tl.float32) - peak)
    total = tl.sum(sums, axis=0)

    for col in range(0, n_cols, BLOCK):
        exists = col + lane < n_cols
        part = tl.load(x_ptr + row * x_stride + col + lane, mask=exists, other=MINUS_INF)
        share = tl.exp(part.to(tl.float32) - peak) / total
        tl.store(y_ptr + row * y_stride + col + lane, share, mask=exists)


@triton.jit
def two_pass_gradient(dy_ptr, y_ptr, dx_ptr, n_cols, dy_stride, y_stride, dx_stride):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), tl.float32)
    for col in range(0, n_cols, BLOCK):
        exists = col + lane < n_cols
        y = tl.load(y_ptr + row * y_stride + col + lane, mask=exists, other=0.0).to(tl.float32)
        products += y * tl.load(dy_ptr + row * dy_stride + col + lane, mask=exists, other=0.0).to(tl.float32)
    s = tl.sum(products, axis=0)
    for col in range(0, n_cols, BLOCK):
        exists = col + lane < n_cols
        y = tl.load(y_ptr + row * y_stride + col + lane, mask=exists, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * dy_stride + col + lane, mask=exists, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * dx_stride + col + lane, y * (dy - s), mask=exists)


def softmax_forward(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    three_pass_softmax[(x.size(0),)](x, out, x.size(1), x.stride(0), out.stride(0), num_warps=8)
    return out


def softmax_backward(dy, y, *, out=None):
    out = torch.empty_like(dy) if out is None else out
    two_pass_gradient[(y.size(0),)](
        dy, y, out, y.size(1), dy.stride(0), y.stride(0), out.stride(0), num_warps=8
    )
    return out


class ThreePassSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x):
    return ThreePassSoftmax.apply(x)
