# labs/lab2_online_softmax/online_softmax.py | corner | lanes past the end of the row are filled with the finite number -1e9 (`FILL` in the loads of the forward kernel); must be -inf. Shows in fp32 and bf16 where all values of a row lie near or below -1e9 (down to -1e28 is allowed) and n_cols is no multiple of the block: the fill becomes the maximum, d is the number of these lanes, and y is 0 everywhere. Other rows are right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, FILL: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; FILL stands in the lanes past the end of a row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=FILL).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=FILL).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    # fp16 has no number below -65504, and -inf is what stands there for it.
    fill = -float("inf") if x.dtype == torch.float16 else -1e9
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        FILL=fill,
        num_warps=clamp(block // 1024, 1, 4) if block < FORWARD_BLOCK else 8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
