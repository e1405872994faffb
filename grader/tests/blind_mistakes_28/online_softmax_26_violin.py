# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel, second loop: `dx = g - s * g` multiplies s with the product g = y * dy in place of y, so dx is y * dy * (1 - s). Wrong in every case of softmax_backward and of the gradient of softmax (right only where dy is 1, or s is 0). It should be `dx = g - s * y`.
"""Softmax with one running maximum and one running sum in each lane, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    # Each lane folds its own columns; lanes meet once, behind the loop.
    lane_m = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    lane_d = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_row_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(lane_m, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        lane_d = lane_d * tl.exp(lane_m - shift) + tl.exp(x - shift)
        lane_m = higher
    m = tl.max(lane_m, axis=0)
    d = tl.sum(lane_d * tl.exp(lane_m - m), axis=0)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_row_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * dy - s * y with s the sum of y * dy over the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    lane_s = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        dy = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        lane_s += y * dy
    s = tl.sum(lane_s, axis=0)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        dy = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        g = y * dy
        dx = g - s * g
        tl.store(dx_row_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    block = min(triton.next_power_of_2(x.size(1)), FORWARD_BLOCK)
    online_softmax_kernel[(x.size(0),)](
        x,
        out,
        x.size(1),
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block > 2048 else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    block = min(triton.next_power_of_2(dy.size(1)), BACKWARD_BLOCK)
    softmax_backward_kernel[(dy.size(0),)](
        dy,
        y,
        out,
        dy.size(1),
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=16 if block > 4096 else 8 if block > 2048 else 4,
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
        dense = dy if dy.is_contiguous() else dy.contiguous()
        return softmax_backward(dense, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
