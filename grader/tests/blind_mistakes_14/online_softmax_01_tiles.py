# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In online_softmax_kernel, first loop, `d = d * tl.exp(m - shift) + tl.sum(p)` sums over the whole ROWS x BLOCK tile, so all rows of a tile share one (too large) sum; it should be `tl.sum(p, axis=1)`.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

A program takes a tile of ROWS rows and walks over the columns.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048
TILE_ROWS = 4


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
    """y[i, :] = exp(x[i, :] - m) / d for ROWS rows."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_tile = x_ptr + rows * stride_x
    y_tile = y_ptr + rows * stride_y

    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_tile + cols, mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)  # nothing but -inf so far
        p = tl.exp(x - shift[:, None])
        d = d * tl.exp(m - shift) + tl.sum(p)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_tile + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_tile + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]) for ROWS rows."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    dy_tile = dy_ptr + rows * stride_dy
    y_tile = y_ptr + rows * stride_y
    dx_tile = dx_ptr + rows * stride_dx

    s = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_tile + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_tile + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_tile + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_tile + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_tile + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, TILE_ROWS),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=TILE_ROWS, BLOCK=block, num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, TILE_ROWS),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=TILE_ROWS,
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
