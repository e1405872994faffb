# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax: a bounded number of programs, each with a run of neighbouring rows."""

import torch
import triton
import triton.language as tl

MOST_PROGRAMS = 120
BLOCK_LIMIT = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    rows_each,  # rows of a program; the last one may have fewer
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(axis=0) * rows_each
    offs = tl.arange(0, BLOCK)
    for row in range(first, tl.minimum(first + rows_each, n_rows)):
        x_ptrs = x_ptr + tl.cast(row, tl.int64) * stride_x + offs
        y_ptrs = y_ptr + tl.cast(row, tl.int64) * stride_y + offs
        # Below every score, and finite: with it no difference is -inf - -inf, and exp of it is 0 in the end.
        m = -1e30
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            keep = offs < n_cols - start
            x = tl.load(x_ptrs + start, mask=keep, other=-float("inf")).to(tl.float32)
            raised = tl.maximum(m, tl.max(x, axis=0))
            d = d * tl.exp(m - raised) + tl.sum(tl.exp(x - raised), axis=0)
            m = raised
        share = 1.0 / d
        for start in range(0, n_cols, BLOCK):
            keep = offs < n_cols - start
            x = tl.load(x_ptrs + start, mask=keep, other=-float("inf")).to(tl.float32)
            tl.store(y_ptrs + start, (tl.exp(x - m) * share).to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    rows_each,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(axis=0) * rows_each
    offs = tl.arange(0, BLOCK)
    for row in range(first, tl.minimum(first + rows_each, n_rows)):
        dy_ptrs = dy_ptr + tl.cast(row, tl.int64) * stride_dy + offs
        y_ptrs = y_ptr + tl.cast(row, tl.int64) * stride_y + offs
        dx_ptrs = dx_ptr + tl.cast(row, tl.int64) * stride_dx + offs
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            keep = offs < n_cols - start
            dy = tl.load(dy_ptrs + start, mask=keep, other=0.0).to(tl.float32)
            y = tl.load(y_ptrs + start, mask=keep, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            keep = offs < n_cols - start
            dy = tl.load(dy_ptrs + start, mask=keep, other=0.0).to(tl.float32)
            y = tl.load(y_ptrs + start, mask=keep, other=0.0).to(tl.float32)
            tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=keep)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def share_out(n_rows: int) -> tuple:
    """(programs, rows of each)"""
    rows_each = triton.cdiv(n_rows, MOST_PROGRAMS)
    return triton.cdiv(n_rows, rows_each), rows_each


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    programs, rows_each = share_out(n_rows)
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    online_softmax_kernel[(programs,)](
        x,
        out,
        n_rows,
        n_cols,
        rows_each,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    programs, rows_each = share_out(n_rows)
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    softmax_backward_kernel[(programs,)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        rows_each,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
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
