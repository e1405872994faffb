# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) The second loop of online_softmax_kernel computes tl.exp2(x - m) / d without the factor LOG2E that the first loop has, so y is too flat and rows do not sum to 1; it should be tl.exp2((x - m) * LOG2E) / d. (2) The first loop of softmax_backward_kernel has `s = tl.sum(...)` instead of `s += tl.sum(...)`, so in rows of more than one block (2048 columns) only the last block counts.
"""Online softmax with exp2."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048
LOG2E = tl.constexpr(1.4426950408889634)


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
        idx = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + idx, mask=idx < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        scale = tl.exp2((m - shift) * LOG2E)
        d = d * scale + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + idx, mask=idx < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        y = tl.exp2(x - m) / d
        tl.store(y_row_ptr + idx, y.to(y_ptr.dtype.element_ty), mask=idx < n_cols)


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
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        s = tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + idx, dx.to(dx_ptr.dtype.element_ty), mask=idx < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = triton.next_power_of_2(n_cols)
    if block > FORWARD_BLOCK:
        block = FORWARD_BLOCK
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = triton.next_power_of_2(n_cols)
    if block > BACKWARD_BLOCK:
        block = BACKWARD_BLOCK
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
