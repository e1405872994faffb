# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel: `dot = 0.0` starts as one number, and the loop's `dot += dy * y` makes it a block of BLOCK numbers; Triton cannot compile a loop whose variable changes its type. In the interpreter it runs and is right, but compiled for a GPU it fails in every case of softmax_backward and of the gradient of softmax(). It should start as `tl.zeros((BLOCK,), dtype=tl.float32)` (or add tl.sum(dy * y) in the loop). The forward pass is right.
"""Softmax of rows of any length. Every lane keeps figures of its own columns, which are joined once a row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    tops = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + idx, mask=idx < n_cols, other=-float("inf")).to(tl.float32)
        new_tops = tl.maximum(tops, x)
        shift = tl.where(new_tops == -float("inf"), 0.0, new_tops)
        sums = sums * tl.exp(tops - shift) + tl.exp(x - shift)
        tops = new_tops
    top = tl.max(tops, axis=0)
    total = tl.sum(sums * tl.exp(tops - top), axis=0)
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + idx, mask=idx < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + idx, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=idx < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        dot += dy * y
    s = tl.sum(dot, axis=0)
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + idx, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=idx < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    width = clamp(triton.next_power_of_2(cols), 16, FORWARD_BLOCK)
    online_softmax_kernel[(rows,)](
        x, result, cols, x.stride(0), result.stride(0), BLOCK=width, num_warps=4
    )
    return result


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.empty_like(dy) if out is None else out
    rows, cols = dy.shape
    width = clamp(triton.next_power_of_2(cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(rows,)](
        dy, y, result, cols, dy.stride(0), y.stride(0), result.stride(0), BLOCK=width, num_warps=8
    )
    return result


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
