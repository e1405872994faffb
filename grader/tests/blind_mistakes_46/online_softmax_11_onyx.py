# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `gradient_tiles_kernel` the line `s += tl.sum(y * dy)` has no axis, so it sums over all four rows of the tile and each row gets the sum of its neighbours, too; it should be `tl.sum(y * dy, axis=1)`. It shows in all cases with more than one row (only matrices of one row are right).
"""Softmax and its gradient on tiles of several rows, and the autograd function."""

import torch
import triton
import triton.language as tl

ROWS = 4  # rows of a tile
WIDTH = 2048  # columns of a tile, at most


@triton.jit
def tile_of(ptr, rows, n_rows, stride, cols, n_cols, fill: tl.constexpr):
    """Load a tile as fp32, with `fill` where the matrix has no element."""
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    block = tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=fill)
    return block.to(tl.float32)


@triton.jit
def put_tile(ptr, rows, n_rows, stride, cols, n_cols, value):
    """Store a tile in the dtype of the matrix, where the matrix has elements."""
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], value.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_tiles_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """y for ROWS rows, with a maximum and a sum for each of them."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        x = tile_of(x_ptr, rows, n_rows, stride_x, cols, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # Rows past the end of the matrix have no finite value: keep them finite as well.
    m = tl.where(m == -float("inf"), 0.0, m)
    d = tl.where(d == 0.0, 1.0, d)
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        x = tile_of(x_ptr, rows, n_rows, stride_x, cols, n_cols, -float("inf"))
        put_tile(y_ptr, rows, n_rows, stride_y, cols, n_cols, tl.exp(x - m[:, None]) / d[:, None])


@triton.jit
def gradient_tiles_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """dx for ROWS rows, from the sum of y * dy over each row."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    s = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        dy = tile_of(dy_ptr, rows, n_rows, stride_dy, cols, n_cols, 0.0)
        y = tile_of(y_ptr, rows, n_rows, stride_y, cols, n_cols, 0.0)
        s += tl.sum(y * dy)
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        dy = tile_of(dy_ptr, rows, n_rows, stride_dy, cols, n_cols, 0.0)
        y = tile_of(y_ptr, rows, n_rows, stride_y, cols, n_cols, 0.0)
        put_tile(dx_ptr, rows, n_rows, stride_dx, cols, n_cols, y * (dy - s[:, None]))


def shape_of_tile(n_cols: int):
    """Columns of a tile, and the warps that work on it."""
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    return width, 16 if width > 512 else 4


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    width, warps = shape_of_tile(n_cols)
    softmax_tiles_kernel[(triton.cdiv(n_rows, ROWS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, WIDTH=width, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of the softmax with respect to its input."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    width, warps = shape_of_tile(n_cols)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    gradient_tiles_kernel[(triton.cdiv(n_rows, ROWS),)](
        dy, y, out, n_rows, n_cols, *strides, ROWS=ROWS, WIDTH=width, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with its gradient."""

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
    """Softmax of each row of x, differentiable."""
    return OnlineSoftmax.apply(x)
