# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient on tiles: several short rows in a program, or one long row block by block."""

import torch
import triton
import triton.language as tl

TILE = 2048  # elements of a tile with more than one row
MOST_ROWS = 16
FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def tile_of(base, stride, rows, cols):
    """Pointers to a tile: `rows` is int64, so the product cannot wrap around."""
    return base + rows[:, None] * stride + cols[None, :]


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
    """Maximum and sum are vectors, one entry for each row of the tile."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_exists = rows < n_rows

    top = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    mass = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        exists = row_exists[:, None] & (cols < n_cols)[None, :]
        x = tl.load(tile_of(x_ptr, stride_x, rows, cols), mask=exists, other=-float("inf")).to(tl.float32)
        raised = tl.maximum(top, tl.max(x, axis=1))
        shift = tl.where(raised == -float("inf"), 0.0, raised)
        mass = mass * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        top = raised

    # Rows of the tile behind the last row of the matrix: any finite numbers, nothing of them is stored.
    top = tl.where(row_exists, top, 0.0)
    mass = tl.where(row_exists, mass, 1.0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        exists = row_exists[:, None] & (cols < n_cols)[None, :]
        x = tl.load(tile_of(x_ptr, stride_x, rows, cols), mask=exists, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top[:, None]) / mass[:, None]
        tl.store(tile_of(y_ptr, stride_y, rows, cols), y.to(y_ptr.dtype.element_ty), mask=exists)


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
    """From left to right for the sums, from right to left for dx: the last block is still in the cache."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_exists = rows < n_rows
    blocks = (n_cols + COLS - 1) // COLS

    s = tl.zeros((ROWS,), dtype=tl.float32)
    for k in range(0, blocks):
        cols = k * COLS + tl.arange(0, COLS)
        exists = row_exists[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(tile_of(dy_ptr, stride_dy, rows, cols), mask=exists, other=0.0).to(tl.float32)
        y = tl.load(tile_of(y_ptr, stride_y, rows, cols), mask=exists, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=1)

    for k in range(0, blocks):
        cols = (blocks - 1 - k) * COLS + tl.arange(0, COLS)
        exists = row_exists[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(tile_of(dy_ptr, stride_dy, rows, cols), mask=exists, other=0.0).to(tl.float32)
        y = tl.load(tile_of(y_ptr, stride_y, rows, cols), mask=exists, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(tile_of(dx_ptr, stride_dx, rows, cols), dx.to(dx_ptr.dtype.element_ty), mask=exists)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def tile_shape(n_cols: int, widest: int) -> tuple:
    """Rows and columns of a tile, powers of two."""
    cols = min(triton.next_power_of_2(n_cols), widest)
    return clamp(TILE // cols, 1, MOST_ROWS), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, into `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, cols = tile_shape(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=clamp(rows * cols // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, into `out` where one is given."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    rows, cols = tile_shape(n_cols, BACKWARD_BLOCK)
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
        COLS=cols,
        num_warps=clamp(rows * cols // 512, 1, 16),
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
        # Padded rows need no copy, only columns that are not next to each other do.
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
