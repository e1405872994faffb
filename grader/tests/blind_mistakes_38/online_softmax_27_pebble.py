# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward copies dy only `if dy.stride(0) < dy.shape[1]`. That catches expanded and transposed gradients, but not one whose columns are apart while its rows are far apart too, such as every second column of a wider matrix (strides 2 * n_cols and 2, or a column expanded inside a wide matrix): the kernel then reads neighbours that are no elements of dy, and dx is wrong. It should look at the column stride: `if dy.stride(1) != 1`, or copy always with dy.contiguous(). softmax_forward and softmax_backward are right, and so is the gradient for contiguous, padded, expanded and transposed dy.
"""Softmax over the rows of a matrix, with its gradient."""

import torch
import triton
import triton.language as tl


# The widest block, and the columns that a warp should have of it.
FORWARD = (8192, 1024)
BACKWARD = (8192, 512)


@triton.jit
def online_softmax_kernel(
    src_ptr,
    dst_ptr,
    n_cols,
    src_stride,
    dst_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    src_ptr += row * src_stride
    dst_ptr += row * dst_stride
    minus_inf = -float("inf")

    running_max = minus_inf
    running_sum = 0.0
    for left in range(0, n_cols, BLOCK):
        at = left + tl.arange(0, BLOCK)
        x = tl.load(src_ptr + at, mask=at < n_cols, other=minus_inf).to(tl.float32)
        block_max = tl.max(x, axis=0)
        # A block of -inf alone has no maximum to subtract; exp(-inf - 0) is 0, as it should be.
        block_shift = tl.where(block_max == minus_inf, 0.0, block_max)
        block_sum = tl.sum(tl.exp(x - block_shift), axis=0)
        new_max = tl.maximum(running_max, block_max)
        shift = tl.where(new_max == minus_inf, 0.0, new_max)
        running_sum = running_sum * tl.exp(running_max - shift) + block_sum * tl.exp(block_max - shift)
        running_max = new_max

    for left in range(0, n_cols, BLOCK):
        at = left + tl.arange(0, BLOCK)
        x = tl.load(src_ptr + at, mask=at < n_cols, other=minus_inf).to(tl.float32)
        y = tl.exp(x - running_max) / running_sum
        tl.store(dst_ptr + at, y.to(dst_ptr.dtype.element_ty), mask=at < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    dy_stride,
    y_stride,
    dx_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_stride
    y_ptr += row * y_stride
    dx_ptr += row * dx_stride

    dot = 0.0
    for left in range(0, n_cols, BLOCK):
        at = left + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)

    for left in range(0, n_cols, BLOCK):
        at = left + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=at < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.shape)
    block = min(triton.next_power_of_2(x.shape[1]), FORWARD[0])
    online_softmax_kernel[(x.shape[0],)](
        x,
        out,
        x.shape[1],
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(block // FORWARD[1], 1),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = y.new_empty(y.shape)
    block = min(triton.next_power_of_2(y.shape[1]), BACKWARD[0])
    softmax_backward_kernel[(y.shape[0],)](
        dy,
        y,
        out,
        y.shape[1],
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(block // BACKWARD[1], 1),
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
        # Gaps between rows do not need a copy, because the kernel has a stride for them.
        if dy.stride(0) < dy.shape[1]:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
