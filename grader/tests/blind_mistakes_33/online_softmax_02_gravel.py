# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | in online_softmax_kernel, where the maxima and sums of the lanes are joined into those of the row, `d = tl.sum(d_lane, axis=0)` adds sums that are relative to different maxima; y is too small in every row whose values are not all the same (rows sum to less than 1), also in rows of one block; it should be tl.sum(d_lane * tl.exp(m_lane - m), axis=0)
"""Softmax whose first sweep keeps one running maximum and one running sum in each lane."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """No reduction inside the loop: lanes are reduced once, behind it."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptrs = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    lane = tl.arange(0, BLOCK)

    m_lane = tl.full([BLOCK], -float("inf"), tl.float32)
    d_lane = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(
            x_ptrs + start,
            mask=lane < n_cols - start,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        higher = tl.maximum(m_lane, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        d_lane = d_lane * tl.exp(m_lane - shift) + tl.exp(x - shift)
        m_lane = higher

    m = tl.max(m_lane, axis=0)
    d = tl.sum(d_lane, axis=0)

    for start in range(0, n_cols, BLOCK):
        keep = lane < n_cols - start
        x = tl.load(
            x_ptrs + start, mask=keep, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        tl.store(y_ptrs + start, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lane
    y_ptrs = y_ptr + row * stride_y + lane
    dx_ptrs = dx_ptr + row * stride_dx + lane

    partial = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        keep = lane < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=keep, other=0.0).to(tl.float32)
        partial += y * dy
    s = tl.sum(partial, axis=0)

    for start in range(0, n_cols, BLOCK):
        keep = lane < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=keep, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=keep)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=width,
        num_warps=clamp(width // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=width,
        num_warps=clamp(width // 512, 4, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        result = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
