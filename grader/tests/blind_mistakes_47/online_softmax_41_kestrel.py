# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `backward_tile_kernel` (softmax_backward), the stored tile `y * dy - s[:, None]` lacks the factor y of the sum: it should be `y * (dy - s[:, None])`. Wrong in all cases with more than one column; the dx of softmax is wrong, too.
"""Softmax over rows of any length, and its gradient, on tiles of several rows."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile
MOST_ROWS = 16


@triton.jit
def load_tile(ptr, rows, stride, cols, n_rows, n_cols, other):
    """A tile in fp32, and `other` outside of the matrix."""
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=other).to(tl.float32)


@triton.jit
def store_tile(ptr, rows, stride, cols, n_rows, n_cols, tile):
    """Store a tile, rounded to the dtype of the matrix."""
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], tile.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def forward_tile_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program i normalises rows i * ROWS to (i + 1) * ROWS - 1, COLS columns at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        x = load_tile(x_ptr, rows, stride_x, cols, n_rows, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # Rows past the end have no maximum; they are not stored.
    m = tl.where(rows < n_rows, m, 0.0)
    d = tl.where(rows < n_rows, d, 1.0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        x = load_tile(x_ptr, rows, stride_x, cols, n_rows, n_cols, -float("inf"))
        y = tl.exp(x - m[:, None]) / d[:, None]
        store_tile(y_ptr, rows, stride_y, cols, n_rows, n_cols, y)


@triton.jit
def backward_tile_kernel(
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
    """The gradient of the same rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        dy = load_tile(dy_ptr, rows, stride_dy, cols, n_rows, n_cols, 0.0)
        y = load_tile(y_ptr, rows, stride_y, cols, n_rows, n_cols, 0.0)
        s += tl.sum(y * dy, axis=1)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        dy = load_tile(dy_ptr, rows, stride_dy, cols, n_rows, n_cols, 0.0)
        y = load_tile(y_ptr, rows, stride_y, cols, n_rows, n_cols, 0.0)
        store_tile(dx_ptr, rows, stride_dx, cols, n_rows, n_cols, y * dy - s[:, None])


def tile_of(n_rows: int, n_cols: int):
    """Rows and columns of a tile, and the grid that covers n_rows."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    rows = min(TILE // cols, MOST_ROWS)
    warps = 8 if rows * cols == TILE else 4
    return {"ROWS": rows, "COLS": cols, "num_warps": warps}, (triton.cdiv(n_rows, rows),)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    tile, grid = tile_of(n_rows, n_cols)
    forward_tile_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **tile)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    tile, grid = tile_of(n_rows, n_cols)
    backward_tile_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), **tile
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
