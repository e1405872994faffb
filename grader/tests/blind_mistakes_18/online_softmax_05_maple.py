# labs/lab2_online_softmax/online_softmax.py | two mistakes | First, softmax_forward passes stride = x.stride(0) to the kernel for the rows of out as well; the second stride should be out.stride(0). Second, softmax_backward_kernel computes s from one block alone and stores dx in the same loop, which is wrong for rows of more than 2048 columns; s should first be summed over all blocks in a loop of its own.
"""Lab 2: softmax over the rows of a matrix and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048


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
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        valid = offs < n_cols
        dy = tl.load(dy_row_ptr + offs, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + offs, mask=valid, other=0.0).to(tl.float32)
        # multiply and add in fp32
        s = tl.sum(y * dy, axis=0)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=valid)


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
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        valid = offs < n_cols
        x = tl.load(x_row_ptr + offs, mask=valid, other=-float("inf")).to(tl.float32)
        block_max = tl.max(x, axis=0)
        m_new = tl.maximum(m, block_max)
        if m_new > -float("inf"):
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        valid = offs < n_cols
        x = tl.load(x_row_ptr + offs, mask=valid, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=valid)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, row by row."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    stride = x.stride(0)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, stride, stride, BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx from dy and y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
