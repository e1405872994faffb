# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward, in `gradient_tiles`: `dx = y * g - s[:, None]` should be `y * (g - s[:, None])`: the sum is not multiplied by y. Shows in all cases but rows of one column, where y is 1; dx of softmax is wrong with it.
"""Online softmax and its gradient on two-dimensional tiles: short rows share a program, long ones have it alone."""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements of the largest tile
SHORT = 2048  # elements of a tile of several rows


@triton.jit
def tile_load(row_ptrs, live, cols, n_cols, other):
    """Return a tile in fp32, `other` where it reaches over the matrix."""
    inside = live[:, None] & (cols < n_cols)[None, :]
    return tl.load(row_ptrs[:, None] + cols[None, :], mask=inside, other=other).to(tl.float32)


@triton.jit
def tile_store(row_ptrs, live, cols, n_cols, values):
    """Store a tile, without what reaches over the matrix."""
    inside = live[:, None] & (cols < n_cols)[None, :]
    tl.store(row_ptrs[:, None] + cols[None, :], values, mask=inside)


@triton.jit
def softmax_tiles(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program i owns the rows from i * ROWS on, and goes over them COLS columns at a time."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = rows < n_rows
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        x = tile_load(x_rows, live, start + tl.arange(0, COLS), n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    m = tl.where(live, m, 0.0)
    d = tl.where(live, d, 1.0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        x = tile_load(x_rows, live, cols, n_cols, -float("inf"))
        y = tl.exp(x - m[:, None]) / d[:, None]
        tile_store(y_rows, live, cols, n_cols, y.to(y_ptr.dtype.element_ty))


@triton.jit
def gradient_tiles(
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
    """The gradient for the same rows: one sweep for the sums of the rows, one for dx."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = rows < n_rows
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        g = tile_load(dy_rows, live, cols, n_cols, 0.0)
        y = tile_load(y_rows, live, cols, n_cols, 0.0)
        s += tl.sum(y * g, axis=1)

    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        g = tile_load(dy_rows, live, cols, n_cols, 0.0)
        y = tile_load(y_rows, live, cols, n_cols, 0.0)
        dx = y * g - s[:, None]
        tile_store(dx_rows, live, cols, n_cols, dx.to(dx_ptr.dtype.element_ty))


def tile_of(n_cols: int):
    """Return rows and columns of a tile, and its number of warps: powers of two."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    rows = min(max(SHORT // cols, 1), 16)
    return rows, cols, min(max(rows * cols // 512, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), into `out` or a new contiguous matrix."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    rows, cols, warps = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_tiles[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and y, into `out` or a new contiguous matrix."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    rows, cols, warps = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    gradient_tiles[grid](dy, y, out, n_rows, n_cols, *strides, ROWS=rows, COLS=cols, num_warps=warps)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax for autograd."""

    @staticmethod
    def forward(ctx, x):
        """Compute y, which is all that the gradient needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Compute dx; dy may come in any layout."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
