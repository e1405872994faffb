# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel, first sweep: m is overwritten with the new maximum before the factor `scale = tl.exp(m - safe)` is taken, so the factor is 1 and d is never rescaled; shows in rows of more than one block (2048 columns) whose maximum rises after the first block; should be exp(old m - safe). (2) second sweep: `inside = offs <= left` lets one lane too many load and store, one element past the end of the row, wherever n_cols is no multiple of BLOCK (out of bounds, or first element of the next row, or the space between rows); should be offs < left
"""Softmax over the last dimension, block by block, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + offs
    y_ptrs = y_ptr + row * stride_y + offs

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(
            x_ptrs + start,
            mask=offs < n_cols - start,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
        safe = tl.where(m == -float("inf"), 0.0, m)  # -inf - -inf would be NaN
        scale = tl.exp(m - safe)
        d = d * scale + tl.sum(tl.exp(x - safe), axis=0)

    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        inside = offs <= left
        x = tl.load(
            x_ptrs + start, mask=inside, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + offs
    y_ptrs = y_ptr + row * stride_y + offs
    dx_ptrs = dx_ptr + row * stride_dx + offs

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = offs < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = offs < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.size(0), x.size(1)
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.size(0), dy.size(1)
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 8),
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
