# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel works on tiles of (ROWS, BLOCK) and keeps one sum for each row in `dots`, of shape (ROWS,); the second loop subtracts it as `dy - dots`, where shapes (4, BLOCK) and (4,) with BLOCK of at least 128 cannot be broadcast together (Cannot make_shape_compatible). Every call of softmax_backward, and every gradient of softmax, fails. It should be `dy - dots[:, None]`. The forward pass is right.
"""Softmax on tiles of several rows, with its gradient."""

import torch
import triton
import triton.language as tl

ROWS_PER_PROGRAM = 4
TILE_COLS = 1024


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A program owns ROWS rows, and sees BLOCK columns of them at a time."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    row_ok = (rows < n_rows)[:, None]
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y

    tops = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    sums = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        x = tl.load(x_rows + cols, mask=row_ok & (cols < n_cols), other=-float("inf")).to(tl.float32)
        new_tops = tl.maximum(tops, tl.max(x, axis=1))
        shifts = tl.where(new_tops == -float("inf"), 0.0, new_tops)
        sums = sums * tl.exp(tops - shifts) + tl.sum(tl.exp(x - shifts[:, None]), axis=1)
        tops = new_tops

    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        tile_ok = row_ok & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=tile_ok, other=0.0).to(tl.float32)
        y = tl.exp(x - tops[:, None]) / sums[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=tile_ok)


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
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    row_ok = (rows < n_rows)[:, None]
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx

    dots = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        tile_ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=tile_ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=tile_ok, other=0.0).to(tl.float32)
        dots += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        tile_ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=tile_ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=tile_ok, other=0.0).to(tl.float32)
        dx = y * (dy - dots)
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=tile_ok)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 128, TILE_COLS)
    grid = (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)
    online_softmax_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=block,
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 128, TILE_COLS)
    grid = (triton.cdiv(n_rows, ROWS_PER_PROGRAM),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_PROGRAM,
        BLOCK=block,
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward and softmax_backward as one operation."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
