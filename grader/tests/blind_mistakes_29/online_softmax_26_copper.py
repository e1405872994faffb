# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel: tl.sum(y * dy, axis=0) adds over the four rows of the tile, so there is a sum for each lane of columns in place of one for each row, and s[None, :] is subtracted; shows in every case but a 1 x 1 matrix; should be axis=1, a sum of shape [ROWS], and s[:, None]
"""Online softmax, one row for a program; its gradient, four rows for a program."""

import torch
import triton
import triton.language as tl

BLOCK_FORWARD = 8192
BLOCK_BACKWARD = 2048
ROWS_BACKWARD = 4


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_base = x_ptr + row * stride_x
    y_base = y_ptr + row * stride_y
    running_max = -float("inf")
    running_sum = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_base + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        new_max = tl.maximum(running_max, tl.max(x, axis=0))
        safe_max = tl.where(new_max == -float("inf"), 0.0, new_max)
        running_sum = running_sum * tl.exp(running_max - safe_max) + tl.sum(tl.exp(x - safe_max), axis=0)
        running_max = new_max
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_base + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        result = tl.exp(x - running_max) / running_sum
        tl.store(y_base + offs, result.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


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
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    dy_base = dy_ptr + (rows * stride_dy)[:, None]
    y_base = y_ptr + (rows * stride_y)[:, None]
    dx_base = dx_ptr + (rows * stride_dx)[:, None]
    s = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = (start + tl.arange(0, BLOCK))[None, :]
        mask = row_ok & (offs < n_cols)
        dy = tl.load(dy_base + offs, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_base + offs, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = (start + tl.arange(0, BLOCK))[None, :]
        mask = row_ok & (offs < n_cols)
        dy = tl.load(dy_base + offs, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_base + offs, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s[None, :])
        tl.store(dx_base + offs, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_FORWARD)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_BACKWARD)
    grid = (triton.cdiv(n_rows, ROWS_BACKWARD),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS_BACKWARD,
        BLOCK=block,
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of each row of x."""
    return OnlineSoftmax.apply(x)
