# labs/lab2_online_softmax/online_softmax.py | corner | In online_softmax_kernel, first loop, `m = m_new` stands before the line that updates d, so `exp(m - shift)` is exp(0) = 1 and the old sum is never rescaled when a later block raises the maximum; m must be updated after d (only rows of more than one block, here more than 4096 columns, are wrong).
"""Lab 2 - Online softmax, forward and backward."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    # Every program handles exactly one row of the matrix.
    row = tl.program_id(axis=0).to(tl.int64)
    # Pointers to the first element of the row (input / output).
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    # Column numbers inside of a block.
    lanes = tl.arange(0, BLOCK)
    n_blocks = tl.cdiv(n_cols, BLOCK)

    # ---- pass 1: running maximum m and running denominator d ----
    m = -float("inf")
    d = 0.0
    for i in range(0, n_blocks):
        cols = i * BLOCK + lanes
        # Lanes that are out of range get -inf, exp(-inf) = 0.
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # If everything so far is -inf we must not calculate (-inf) - (-inf).
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        # Remember the new maximum.
        m = m_new
        # Rescale the old denominator, then add the new terms.
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)

    # ---- pass 2: normalise ----
    for i in range(0, n_blocks):
        cols = i * BLOCK + lanes
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    # Every program handles exactly one row of the matrix.
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    n_blocks = tl.cdiv(n_cols, BLOCK)

    # ---- pass 1: s = sum over the row of y * dy ----
    s = 0.0
    for i in range(0, n_blocks):
        cols = i * BLOCK + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    # ---- pass 2: dx = y * (dy - s) ----
    for i in range(0, n_blocks):
        cols = i * BLOCK + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    # One program for every row.
    grid = (n_rows,)
    online_softmax_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    BLOCK = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    grid = (n_rows,)
    softmax_backward_kernel[grid](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Connects the two functions for autograd."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        # The gradient only needs y.
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        # dy can have any strides.
        dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax."""
    return OnlineSoftmax.apply(x)
