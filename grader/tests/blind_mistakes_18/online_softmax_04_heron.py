# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel, second loop, d[None, :]: the sums of the rows are spread along the columns, so a tile of (ROWS, BLOCK) is divided by one of (1, ROWS), whose shapes do not go together where ROWS is 4 (rows of up to 2048 columns). It should be d[:, None].
"""Softmax over rows. A program owns a tile of several rows where the rows are short."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


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
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    row_mask = rows < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + cols
        mask = row_mask[:, None] & (offs < n_cols)[None, :]
        x = tl.load(x_rows + offs[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        e = tl.exp(x - shift[:, None])
        d = d * tl.exp(m - shift) + tl.sum(e, axis=1)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        offs = start + cols
        mask = row_mask[:, None] & (offs < n_cols)[None, :]
        x = tl.load(x_rows + offs[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[None, :]
        tl.store(y_rows + offs[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


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
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    row_mask = rows < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx

    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + cols
        mask = row_mask[:, None] & (offs < n_cols)[None, :]
        dy = tl.load(dy_rows + offs[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + offs[None, :], mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        offs = start + cols
        mask = row_mask[:, None] & (offs < n_cols)[None, :]
        dy = tl.load(dy_rows + offs[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + offs[None, :], mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + offs[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)


def tile(n_cols: int, widest: int):
    """Rows and columns of a program's tile."""
    block = min(max(triton.next_power_of_2(n_cols), 16), widest)
    rows = 4 if block <= 2048 else 1
    return rows, block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = tile(n_cols, FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, rows),)
    online_softmax_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=8 if block >= 8192 else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, block = tile(n_cols, BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
