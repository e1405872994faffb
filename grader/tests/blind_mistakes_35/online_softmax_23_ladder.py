# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel does not compile: in the second loop `y * (dy - dots)` combines a (ROWS, BLOCK) tile with dots of shape (ROWS,), which Triton reads as (1, ROWS): incompatible shapes, since ROWS is 4 and BLOCK at least 16. Shows in every call of softmax_backward and in the backward pass of softmax; it should be dots[:, None]
"""Softmax and its gradient; a program owns four rows at a time."""

import torch
import triton
import triton.language as tl

ROWS_EACH = 4
FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048


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
    """Programs own ROWS neighbouring rows; m and d have one entry for each of them."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = rows < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists[:, None] & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # Rows past the last one have seen nothing: harmless numbers for them.
    m = tl.where(exists, m, 0.0)
    d = tl.where(exists, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists[:, None] & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    """dx = y * (dy - sum y * dy) for ROWS neighbouring rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = rows < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    dots = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists[:, None] & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        dots += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists[:, None] & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - dots)
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def width(n_cols: int, widest: int) -> int:
    """Columns of a block."""
    return clamp(triton.next_power_of_2(n_cols), 16, widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the rows of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = width(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, ROWS_EACH),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS_EACH,
        BLOCK=block,
        num_warps=clamp(block // 256, 1, 16),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    block = width(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, ROWS_EACH),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS_EACH,
        BLOCK=block,
        num_warps=clamp(block // 128, 1, 16),
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
