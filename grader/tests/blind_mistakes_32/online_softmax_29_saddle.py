# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) The first loop of softmax_backward_kernel multiplies and adds in the dtype of the tensors: `tl.sum(y * dy, axis=0)` on blocks that were not converted, so s has only the digits of fp16 (or bf16), and dx of softmax_backward and softmax() has several times PyTorch's error in fp16, most visibly where dy is near s; it should convert both to fp32 first, as the second loop does. (2) softmax_backward passes the row strides in the order dy, out, y, but the kernel takes dy, y, dx: y is read with the stride of out and out written with that of y, which is wrong (and leaves the matrix) wherever y and out are padded differently and there is more than one row; it should pass y.stride(0) before out.stride(0)
"""Softmax over long rows, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y

    m = -float("inf")
    d = 0.0
    cols = tl.arange(0, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        cols += BLOCK

    cols = tl.arange(0, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        keep = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=keep, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=keep)
        cols += BLOCK


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
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx

    s = 0.0
    cols = tl.arange(0, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        keep = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=keep, other=0.0)
        y = tl.load(y_row_ptr + cols, mask=keep, other=0.0)
        s += tl.sum(y * dy, axis=0)
        cols += BLOCK

    cols = tl.arange(0, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        keep = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=keep)
        cols += BLOCK


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, any row stride."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    strides = x.stride(0), out.stride(0)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, *strides, BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, any row strides."""
    if out is None:
        out = y.new_empty(y.shape)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = dy.stride(0), out.stride(0), y.stride(0)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=clamp(block // 512, 1, 8)
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
