# lab2/online_softmax.py | honest | - | unusual: every lane keeps its own running maximum and sum over the blocks and the lanes are merged once after the loop; block pointers; exp2 of (x - m) * log2(e); the backward sum is also lane-wise
"""Softmax with one online recurrence per lane."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
WIDEST = 4096


@triton.jit
def row_of(ptr, stride, n_cols, BLOCK: tl.constexpr):
    base = ptr + tl.program_id(0).to(tl.int64) * stride
    return tl.make_block_ptr(base, (n_cols,), (1,), (0,), (BLOCK,), (0,))


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    d = tl.zeros((BLOCK,), tl.float32)
    src = row_of(x_ptr, stride_x, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(src, boundary_check=(0,)).to(tl.float32)
        x = tl.where(start + lane < n_cols, x, -float("inf"))
        new = tl.maximum(m, x)
        shift = tl.where(new == -float("inf"), 0.0, new)
        d = d * tl.exp2((m - shift) * LOG2E) + tl.exp2((x - shift) * LOG2E)
        m = new
        src = tl.advance(src, (BLOCK,))
    top = tl.max(m, axis=0)
    scale = 1.0 / tl.sum(d * tl.exp2((m - top) * LOG2E), axis=0)
    src = row_of(x_ptr, stride_x, n_cols, BLOCK)
    dst = row_of(y_ptr, stride_y, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(src, boundary_check=(0,)).to(tl.float32)
        y = tl.exp2((x - top) * LOG2E) * scale
        tl.store(dst, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        src = tl.advance(src, (BLOCK,))
        dst = tl.advance(dst, (BLOCK,))


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        at = start + lane
        ok = at < n_cols
        g = tl.load(dy_ptr + row * stride_dy + at, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + at, mask=ok, other=0.0).to(tl.float32)
        acc += g * y
    s = tl.sum(acc, axis=0)
    for start in range(0, n_cols, BLOCK):
        at = start + lane
        ok = at < n_cols
        g = tl.load(dy_ptr + row * stride_dy + at, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + at, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + at, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def width(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=width(n_cols), num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=width(n_cols), num_warps=4)
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
