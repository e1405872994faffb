# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | each lane keeps a maximum and a sum of its own, and at the end `total = tl.sum(sums, axis=0)` adds sums that are relative to different maxima; must be tl.sum(sums * tl.exp(tops - top), axis=0). Rows sum to less than 1. Shows in nearly every forward result of more than one column.
"""Softmax whose online recurrence runs in every lane, so that the loop needs no reduction; and its gradient."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 2048


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        raised = tl.maximum(tops, x)
        base = tl.where(raised == -float("inf"), 0.0, raised)
        sums = sums * tl.exp(tops - base) + tl.exp(x - base)
        tops = raised
    top = tl.max(tops, axis=0)
    total = tl.sum(sums, axis=0)
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(g_ptr, y_ptr, dx_ptr, n_cols, stride_g, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    g_row = g_ptr + row * stride_g
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    dots = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        g = tl.load(g_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dots += g * y
    dot = tl.sum(dots, axis=0)
    for first in range(0, n_cols, BLOCK):
        cols = first + lanes
        g = tl.load(g_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, ((g - dot) * y).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def _launch_options(n_cols: int) -> dict:
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    return {"BLOCK": block, "num_warps": 8 if block == BLOCK_LIMIT else 4}


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **_launch_options(n_cols))
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **_launch_options(n_cols)
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


def softmax(x):
    return OnlineSoftmax.apply(x)
