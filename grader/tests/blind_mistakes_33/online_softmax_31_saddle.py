# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel converts dx with .to(dx_ptr.dtype), which is a pointer type, not the type of the elements: Triton cannot cast fp32 to a pointer, so the kernel does not compile (nor run in the interpreter). softmax_backward and the gradient of softmax() fail in every case; right is .to(dx_ptr.dtype.element_ty), as in the forward kernel, which is right.
"""Softmax over rows, online, with its gradient; the host counts the blocks of a row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, n_blocks, stride_x, stride_y, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = -float("inf")
    total = 0.0
    for k in range(0, n_blocks):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
        top = new_top
    for k in range(0, n_blocks):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, n_blocks, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    dot = 0.0
    for k in range(0, n_blocks):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(y * dy, axis=0)
    for k in range(0, n_blocks):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (y * (dy - dot)).to(dx_ptr.dtype)
        tl.store(dx_row + cols, dx, mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def cut(n_cols: int, widest: int):
    """Width and number of the blocks of a row."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, triton.cdiv(n_cols, block)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, columns contiguous."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block, n_blocks = cut(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, n_blocks, x.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 1024, 1, 8),
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y, columns contiguous."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block, n_blocks = cut(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, n_blocks, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 512, 4, 16),
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The pair of them for autograd."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
