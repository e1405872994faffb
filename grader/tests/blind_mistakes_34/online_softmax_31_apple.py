# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.backward: `softmax_forward(kept)` takes the softmax once more, though `kept` is already the result y that forward saved (as if x had been saved to compute y again), so the gradient is that of y' = softmax(y), nearly uniform. It should be `softmax_backward(dy.contiguous(), kept)`. The gradient of softmax() is wrong in every case with more than one column; softmax_forward, softmax_backward called alone, and the values of softmax() are right.
"""Softmax over rows, its gradient, and the autograd function; the block width follows from the row by heuristics."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), FORWARD_BLOCK)})
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    largest = -float("inf")
    weight = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        candidate = tl.maximum(largest, tl.max(x, axis=0))
        shift = tl.where(candidate == -float("inf"), 0.0, candidate)
        weight = weight * tl.exp(largest - shift) + tl.sum(tl.exp(x - shift), axis=0)
        largest = candidate
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        share = tl.exp(x - largest) / weight
        tl.store(y_row_ptr + cols, share.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), BACKWARD_BLOCK)})
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    common = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        common += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (dy - common) * y
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=16
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (kept,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), softmax_forward(kept))


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
