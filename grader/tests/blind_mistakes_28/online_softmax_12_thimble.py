# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel keeps a maximum and a sum for each lane, and merges them with total = tl.sum(lane_sum, axis=0), although each lane's sum is relative to its own maximum: the total is too large and rows sum to less than 1 in every row with different values (one block: total is n_cols); should be tl.sum(lane_sum * tl.exp(lane_max - top), axis=0)
"""Softmax whose lanes each run their own online recurrence: no reduction inside the loop over blocks."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    lane_max = tl.full([BLOCK], LOWEST, dtype=tl.float32)
    lane_sum = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + lanes, mask=lanes < n_cols - start, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(lane_max, x)
        lane_sum = lane_sum * tl.exp(lane_max - higher) + tl.exp(x - higher)
        lane_max = higher
    top = tl.max(lane_max, axis=0)
    total = tl.sum(lane_sum, axis=0)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + lanes, mask=lanes < n_cols - start, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols - start)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    lane_sum = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=mask, other=0.0).to(tl.float32)
        lane_sum += dy * y
    total = tl.sum(lane_sum, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_row + start + lanes, (y * (dy - total)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), FORWARD_BLOCK),
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK),
        num_warps=8,
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
