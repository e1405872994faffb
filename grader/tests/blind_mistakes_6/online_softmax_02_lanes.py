# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In the second sweep of lanewise_forward the numerator is exp2(v - peak) without LOG2E, while the sum `whole` uses base e. It must be exp2((v - peak) * LOG2E).
"""Online softmax with a maximum and a sum in every lane, joined once for each row; powers of two in place of e."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LANES = 512


@triton.jit
def lanewise_forward(x_ptr, y_ptr, n, x_stride, y_stride, LANES: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    x_ptr += r * x_stride
    y_ptr += r * y_stride
    lane = tl.arange(0, LANES)
    high = tl.full((LANES,), -float("inf"), tl.float32)
    mass = tl.zeros((LANES,), tl.float32)
    for j in range(0, n, LANES):
        v = tl.load(x_ptr + j + lane, mask=j + lane < n, other=-float("inf")).to(tl.float32)
        new_high = tl.maximum(high, v)
        pivot = tl.where(new_high == -float("inf"), 0.0, new_high)
        mass = mass * tl.exp2((high - pivot) * LOG2E) + tl.exp2((v - pivot) * LOG2E)
        high = new_high
    # every lane is relative to its own maximum: bring them to that of the row
    peak = tl.max(high, axis=0)
    whole = tl.sum(mass * tl.exp2((high - peak) * LOG2E), axis=0)
    for j in range(0, n, LANES):
        v = tl.load(x_ptr + j + lane, mask=j + lane < n, other=-float("inf")).to(tl.float32)
        w = tl.exp2(v - peak) / whole
        tl.store(y_ptr + j + lane, w.to(y_ptr.dtype.element_ty), mask=j + lane < n)


@triton.jit
def lanewise_backward(g_ptr, y_ptr, dx_ptr, n, g_stride, y_stride, dx_stride, LANES: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    g_ptr += r * g_stride
    y_ptr += r * y_stride
    dx_ptr += r * dx_stride
    lane = tl.arange(0, LANES)
    part = tl.zeros((LANES,), tl.float32)
    for j in range(0, n, LANES):
        keep = j + lane < n
        y = tl.load(y_ptr + j + lane, mask=keep, other=0.0).to(tl.float32)
        part += y * tl.load(g_ptr + j + lane, mask=keep, other=0.0).to(tl.float32)
    mean = tl.sum(part, axis=0)
    for j in range(0, n, LANES):
        keep = j + lane < n
        y = tl.load(y_ptr + j + lane, mask=keep, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + j + lane, mask=keep, other=0.0).to(tl.float32)
        tl.store(dx_ptr + j + lane, ((g - mean) * y).to(dx_ptr.dtype.element_ty), mask=keep)


def softmax_forward(x, *, out=None):
    y = out if out is not None else x.new_empty(x.shape)
    lanewise_forward[(x.shape[0],)](x, y, x.shape[1], x.stride(0), y.stride(0), LANES=LANES)
    return y


def softmax_backward(dy, y, *, out=None):
    dx = out if out is not None else y.new_empty(y.shape)
    lanewise_backward[(y.shape[0],)](
        dy, y, dx, y.shape[1], dy.stride(0), y.stride(0), dx.stride(0), LANES=LANES
    )
    return dx


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


def softmax(x):
    return OnlineSoftmax.apply(x)
