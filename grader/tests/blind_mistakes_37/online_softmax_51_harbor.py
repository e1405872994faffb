# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_backward_kernel the tile of products is reduced along the wrong axis: `s = tl.sum(acc, axis=0)[None, :]` adds up the rows of the tile (one number for each lane of columns) and not the columns of each row. It should be `tl.sum(acc, axis=1)[:, None]`. Every dx of softmax_backward and of softmax's gradient is wrong (where a tile has one row, each lane subtracts only its own products), in all sizes and dtypes but for a single element (1 x 1); the forward pass is right.
"""Softmax and its gradient on two-dimensional tiles: a program owns a few whole rows, narrow rows share one."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096
TILE = 2048  # elements that a tile of narrow rows should have


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program i owns the rows i * ROWS up to (i + 1) * ROWS and visits COLS columns of them at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    x_tile = x_ptr + rows[:, None] * stride_x + cols[None, :]
    y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
    real_rows = (rows < n_rows)[:, None]

    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        mask = real_rows & (start + cols < n_cols)[None, :]
        x = tl.load(x_tile + start, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    for start in range(0, n_cols, COLS):
        mask = real_rows & (start + cols < n_cols)[None, :]
        x = tl.load(x_tile + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_tile + start, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    COLS: tl.constexpr,
):
    """dx = y * (dy - s) on tiles like those of the forward pass."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    dy_tile = dy_ptr + rows[:, None] * stride_dy + cols[None, :]
    y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
    dx_tile = dx_ptr + rows[:, None] * stride_dx + cols[None, :]
    real_rows = (rows < n_rows)[:, None]

    acc = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, n_cols, COLS):
        mask = real_rows & (start + cols < n_cols)[None, :]
        dy = tl.load(dy_tile + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_tile + start, mask=mask, other=0.0).to(tl.float32)
        acc += y * dy
    s = tl.sum(acc, axis=0)[None, :]

    for start in range(0, n_cols, COLS):
        mask = real_rows & (start + cols < n_cols)[None, :]
        dy = tl.load(dy_tile + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_tile + start, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_tile + start, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def tile_of(n_rows: int, n_cols: int, widest: int):
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), widest)
    rows = clamp(TILE // cols, 1, triton.next_power_of_2(n_rows))
    return rows, cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, cols = tile_of(n_rows, n_cols, FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, rows),)
    online_softmax_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=clamp(rows * cols // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, cols = tile_of(n_rows, n_cols, BACKWARD_BLOCK)
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
        COLS=cols,
        num_warps=clamp(rows * cols // 256, 1, 16),
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
