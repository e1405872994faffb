# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient on tiles: a program owns several short rows, or one long row, block by block."""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements of a tile
MOST_ROWS = 16


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
    alive = rows < n_rows
    cols = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + rows[:, None] * stride_x + cols[None, :]
    y_ptrs = y_ptr + rows[:, None] * stride_y + cols[None, :]

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = alive[:, None] & (start + cols[None, :] < n_cols)
        x = tl.load(x_ptrs + start, mask=mask, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(top == -float("inf"), 0.0, top)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = top

    # Rows behind the last one hold nothing; give them harmless numbers.
    m = tl.where(alive, m, 0.0)
    d = tl.where(alive, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        mask = alive[:, None] & (start + cols[None, :] < n_cols)
        x = tl.load(x_ptrs + start, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    alive = rows < n_rows
    cols = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + rows[:, None] * stride_dy + cols[None, :]
    y_ptrs = y_ptr + rows[:, None] * stride_y + cols[None, :]
    dx_ptrs = dx_ptr + rows[:, None] * stride_dx + cols[None, :]

    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = alive[:, None] & (start + cols[None, :] < n_cols)
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        mask = alive[:, None] & (start + cols[None, :] < n_cols)
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def tile_of(n_cols: int, elements: int):
    """Rows and columns of a tile with at most so many elements."""
    block = clamp(triton.next_power_of_2(n_cols), 16, elements)
    return clamp(elements // (4 * block), 1, MOST_ROWS), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the rows of x and of out may be padded."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    rows, block = tile_of(n_cols, TILE)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=clamp(rows * block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; rows may be padded."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    rows, block = tile_of(n_cols, TILE)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
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
        num_warps=clamp(rows * block // 512, 1, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
