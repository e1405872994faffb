# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel, second loop: `tl.exp(x - m[:, None]) / d` divides a tile of shape (4, BLOCK), BLOCK at least 16, by the block d of shape (4,), which Triton cannot broadcast: an error about incompatible dimensions. Every call of softmax_forward and of softmax fails. It should be d[:, None].
"""Softmax with four rows per program."""

import torch
import triton
import triton.language as tl

ROWS = 4
FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 1024


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
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    real_rows = (rows < n_rows)[:, None]
    x_rows = x_ptr + (rows * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        real = real_rows & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=real, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - base) + tl.sum(tl.exp(x - base[:, None]), axis=1)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        real = real_rows & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=real, other=0.0).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=real)


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
    real_rows = (rows < n_rows)[:, None]
    dy_rows = dy_ptr + (rows * stride_dy)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]
    dx_rows = dx_ptr + (rows * stride_dx)[:, None]
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        real = real_rows & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=real, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=real, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        real = real_rows & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=real, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=real, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=real)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, ROWS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, ROWS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=4,
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
