# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel, first loop: y is loaded through dy_row in place of y_row, so s is the sum of dy * dy; shows in every case of softmax_backward and in every gradient of softmax; should be tl.load(y_row + cols, ...)
"""Online softmax after Milakov and Gimelshein, and its gradient."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 8192


@triton.jit
def fold(m, d, x):
    """Maximum and sum after one more block of columns."""
    top = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(top == -float("inf"), 0.0, top)
    d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return top, d


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m, d = fold(m, d, x)
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for i in range(0, tl.cdiv(n_cols, BLOCK)):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = y.new_empty(y.shape)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block > 2048 else 4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax that autograd can differentiate once."""

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
