# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_backward` `out = torch.empty_like(dy)` inherits the layout of a transposed dy (column stride n_rows), which `OnlineSoftmax.backward` passes on without a copy, while the kernel stores dx with contiguous columns; it should be a contiguous `torch.empty(dy.shape, ...)` (or `empty_like(y)`). Shows only in the gradient of softmax for a transposed dy (with more than one row and column); expanded, padded and spread ones are right.
"""Online softmax and its gradient; the backward kernel steps through dy with both of its strides."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i of x in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - base) + tl.sum(tl.exp(x - base), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def fetch(dy_ptr, y_ptr, cols, n_cols, step_dy):
    """dy and y at these columns in fp32, 0 past the end of the row."""
    mask = cols < n_cols
    dy = tl.load(dy_ptr + cols.to(tl.int64) * step_dy, mask=mask, other=0.0)
    y = tl.load(y_ptr + cols, mask=mask, other=0.0)
    return dy.to(tl.float32), y.to(tl.float32)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) in any layout
    y_ptr,  # (n_rows, n_cols), columns contiguous
    dx_ptr,  # like y
    n_cols,
    stride_dy,  # elements from one row of dy to the next
    step_dy,  # elements from one column of dy to the next
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy, y = fetch(dy_ptr, y_ptr, start + tl.arange(0, BLOCK), n_cols, step_dy)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy, y = fetch(dy_ptr, y_ptr, cols, n_cols, step_dy)
        dx = y * (dy - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 4096 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; dy may be expanded or transposed, no copy of it is made."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=16 if block > 4096 else 8 if block > 1024 else 4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; y is all that the gradient needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy, in whatever layout it comes."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
