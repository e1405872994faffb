# labs/lab2_online_softmax/online_softmax.py | contract | in online_softmax_kernel, both `tl.load(x_row + cols)` have no mask: the numbers are right, because tl.where replaces the lanes past the end before they are used, but these lanes are read from the space between rows, or from behind the tensor in the last row; shows wherever n_cols is no multiple of the block; it should be mask=cols < n_cols, other=-float("inf") in the load
"""Softmax over rows: statistics of the row in a first sweep, shares in a second."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    n_blocks = tl.cdiv(n_cols, BLOCK)

    m = -float("inf")
    d = 0.0
    for i in range(0, n_blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols).to(tl.float32)
        x = tl.where(cols < n_cols, x, -float("inf"))
        peak = tl.maximum(m, tl.max(x, axis=0))
        origin = tl.where(peak == -float("inf"), 0.0, peak)
        d = d * tl.exp(m - origin)
        d += tl.sum(tl.exp(x - origin), axis=0)
        m = peak

    for i in range(0, n_blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols).to(tl.float32)
        x = tl.where(cols < n_cols, x, -float("inf"))
        share = tl.exp(x - m) / d
        tl.store(y_row + cols, share.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    n_blocks = tl.cdiv(n_cols, BLOCK)

    s = 0.0
    for i in range(0, n_blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        ok = cols < n_cols
        dy = tl.load(dy_row + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for i in range(0, n_blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        ok = cols < n_cols
        dy = tl.load(dy_row + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def block_for(n_cols: int, widest: int) -> int:
    return min(triton.next_power_of_2(n_cols), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block_for(n_cols, FORWARD_BLOCK),
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block_for(n_cols, BACKWARD_BLOCK),
        num_warps=clamp(n_cols // 4096, 1, 2) * 4,
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
