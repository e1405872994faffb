# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax in which each lane has a maximum and a sum of its own; the lanes are joined once for each row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    source = x_ptr + row * stride_x
    target = y_ptr + row * stride_y

    tops = tl.full((BLOCK,), -float("inf"), tl.float32)
    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    start = 0
    while start < n_cols:
        cols = start + lanes
        x = tl.load(source + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(tops, x)
        # a lane that has seen -inf only
        shift = tl.where(higher > -float("inf"), higher, 0.0)
        parts = parts * tl.exp(tops - shift) + tl.exp(x - shift)
        tops = higher
        start += BLOCK

    m = tl.max(tops, axis=0)
    d = tl.sum(parts * tl.exp(tops - m), axis=0)

    start = 0
    while start < n_cols:
        cols = start + lanes
        inside = cols < n_cols
        x = tl.load(source + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(target + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=inside)
        start += BLOCK


@triton.jit
def pair(a_row, b_row, cols, n_cols):
    inside = cols < n_cols
    a = tl.load(a_row + cols, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_row + cols, mask=inside, other=0.0).to(tl.float32)
    return a, b


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx

    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy, y = pair(dy_row, y_row, start + lanes, n_cols)
        parts += dy * y
    s = tl.sum(parts, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy, y = pair(dy_row, y_row, cols, n_cols)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def widths(n_cols: int, widest: int) -> dict:
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "num_warps": max(1, min(8, block // 512))}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    meta = widths(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **meta)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    meta = widths(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **meta)
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
