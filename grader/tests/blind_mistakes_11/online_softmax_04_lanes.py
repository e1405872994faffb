# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | the sums of the lanes are added although each is relative to the maximum of its own lane (`d = tl.sum(lane_d, axis=0)`); must be the sum of lane_d * exp(lane_m - m). In a row of one block each lane's sum is 1, so d is the number of columns: y is too small in nearly every row. softmax_backward alone is right.
"""Online softmax with one maximum and one sum for each lane: no reduction inside the loop."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Each lane runs the recurrence on its own columns; the lanes are joined after the last block."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane_m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    lane_d = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_m = tl.maximum(lane_m, x)
        # A lane that has seen -inf only: any finite shift will do.
        shift = tl.where(new_m == -float("inf"), 0.0, new_m)
        lane_d = lane_d * tl.exp(lane_m - shift) + tl.exp(x - shift)
        lane_m = new_m
    m = tl.max(lane_m, axis=0)
    d = tl.sum(lane_d, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane_s = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        lane_s += y * dy
    s = tl.sum(lane_s, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
