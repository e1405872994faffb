# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel keeps a maximum and a sum for each lane, and merges them with `d = tl.sum(lane_sum, axis=0)`: the sums of the lanes are relative to the lanes' own maxima and are not brought to the row's maximum; should be tl.sum(lane_sum * tl.exp(lane_max - m), axis=0). Wrong for all rows but those of one column or whose lanes all have the same maximum; rows sum to less than 1
"""Softmax by rows. Every lane runs the online recurrence on its own columns; the lanes meet once, at the end."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 1024
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    # No reduction in this loop: a tree of shuffles for each block would cost more than the exps.
    lane_max = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    lane_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_row_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(lane_max, x)
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * tl.exp(lane_max - shift) + tl.exp(x - shift)
        lane_max = new_max

    m = tl.max(lane_max, axis=0)
    d = tl.sum(lane_sum, axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + lane
        valid = col < n_cols
        x = tl.load(x_row_ptr + col, mask=valid, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + col, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    lane_dot = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        dy = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        lane_dot += y * dy
    dot = tl.sum(lane_dot, axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + lane
        valid = col < n_cols
        dy = tl.load(dy_row_ptr + col, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col, mask=valid, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + col, (y * (dy - dot)).to(dx_ptr.dtype.element_ty), mask=valid)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def lanes_for(n_cols: int, most: int) -> int:
    """The number of lanes of a program: a power of two, no more than `most`."""
    return clamp(triton.next_power_of_2(n_cols), 1, most)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=lanes_for(n_cols, FORWARD_BLOCK), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=lanes_for(n_cols, BACKWARD_BLOCK),
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
