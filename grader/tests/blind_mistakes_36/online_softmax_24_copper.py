# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel, last loop: `g - s` subtracts a block of shape (ROWS,), the sums of ROWS = 4 rows, from a tile of shape (ROWS, BLOCK); shapes are aligned from the right, so 4 meets BLOCK and it neither compiles nor runs in the interpreter, in softmax_backward and in the gradient of softmax, for all sizes and dtypes (only at 3 or 4 columns, where BLOCK is 4, it runs and subtracts the sum of another row); it should be `g - s[:, None]`
"""Online softmax and its gradient; the backward pass takes four rows at a time."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_ROWS = 4
BACKWARD_BLOCK = 2048


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
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    running_max = -float("inf")
    running_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = offs < n_cols - start
        x = tl.load(x_row + start + offs, mask=mask, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(running_max, tl.max(x, axis=0))
        base = tl.where(new_max == -float("inf"), 0.0, new_max)
        running_sum *= tl.exp(running_max - base)
        running_sum += tl.sum(tl.exp(x - base), axis=0)
        running_max = new_max
    for start in range(0, n_cols, BLOCK):
        mask = offs < n_cols - start
        x = tl.load(x_row + start + offs, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - running_max) / running_sum
        tl.store(y_row + start + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - s) for ROWS rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_mask = rows[:, None] < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        mask = row_mask & (cols < n_cols)
        g = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        mask = row_mask & (cols < n_cols)
        g = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        dx = p * (g - s)
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.size(0), x.size(1)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block < FORWARD_BLOCK else 8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.size(0), dy.size(1)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, BACKWARD_ROWS),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=BACKWARD_ROWS,
        BLOCK=block,
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        out = softmax_forward(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, dy):
        (out,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), out)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
