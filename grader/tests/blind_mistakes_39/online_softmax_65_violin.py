# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel, second loop, `tl.exp(x - m[:, None]) / d`: d has shape (ROWS,) and the tile (ROWS, BLOCK), so the division has incompatible shapes (ROWS is 2 to 8, BLOCK at least 16) and the kernel does not compile, in every case; right: d[:, None]
"""Softmax of tiles of several rows, its gradient, and an autograd function for both."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 16384
TILE = 4096  # elements of a tile of narrow rows


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
    """Program i owns the rows from i * ROWS on; each of them has its own m and d."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, BLOCK)
    row_mask = rows[:, None] < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes[None, :]
        mask = row_mask & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes[None, :]
        mask = row_mask & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_lanes = dy_ptr + row * stride_dy + lanes
    y_lanes = y_ptr + row * stride_y + lanes
    dx_lanes = dx_ptr + row * stride_dx + lanes

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        dy = tl.load(dy_lanes + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_lanes + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        dy = tl.load(dy_lanes + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_lanes + start, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_lanes + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    rows = clamp(TILE // block, 2, 8)
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
        num_warps=clamp(rows * block // 1024, 1, 16),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
