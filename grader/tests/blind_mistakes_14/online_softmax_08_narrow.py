# labs/lab2_online_softmax/online_softmax.py | two mistakes | In online_softmax_kernel, `m = tl.maximum(m, tl.max(x, axis=0))` overwrites the old maximum before `tl.exp(m - shift)`, so the factor for the old sum is always 1 and rows of several blocks whose maximum rises are wrong; the old m should be kept for the factor. In softmax_backward, the launch passes `y.stride(0)` a second time for stride_dx; it should be out.stride(0).
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 1024
BACKWARD_BLOCK = 1024


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x,  # elements from one row of x to the next
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        valid = idx < n_cols
        x = tl.load(x_row_ptr + idx, mask=valid, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        valid = idx < n_cols
        x = tl.load(x_row_ptr + idx, mask=valid, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + idx, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like dy, the result of the forward pass
    dx_ptr,  # (n_rows, n_cols) like dy
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        valid = idx < n_cols
        dy = tl.load(dy_row_ptr + idx, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + idx, mask=valid, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        valid = idx < n_cols
        dy = tl.load(dy_row_ptr + idx, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + idx, mask=valid, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + idx, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=valid)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), y.stride(0), BLOCK=block, num_warps=4
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
