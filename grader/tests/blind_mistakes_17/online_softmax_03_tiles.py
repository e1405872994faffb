# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel has a tile of ROWS = 4 rows, but the sum is tl.sum(e) without axis, which adds up all rows of the tile, so every row is divided by the sum of up to four rows. It should be tl.sum(e, axis=1).
"""Softmax in tiles of several rows."""

import torch
import triton
import triton.language as tl

ROWS = 4
FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """A program has ROWS rows and takes BLOCK columns of them at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = rows < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = row_ok[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        e = tl.exp(x - shift[:, None])
        d = d * tl.exp(m - shift) + tl.sum(e)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = row_ok[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = rows < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = row_ok[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = row_ok[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, ROWS),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=block, num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, ROWS),)
    softmax_backward_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=ROWS, BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
