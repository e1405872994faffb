# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `gradient_tiles`, `s = tl.sum(products, axis=0, keep_dims=True)` should have `axis=1`: it adds along the rows of a tile and gives one sum for each column of it, which broadcasts without an error. Wrong in all cases of softmax_backward and of the gradient of softmax but a matrix of one element.
"""Softmax over rows and its gradient; a program takes tiles of several rows where the rows are narrow."""

import torch
import triton
import triton.language as tl

WIDEST = 4096  # columns of a tile
MOST_ROWS = 8


@triton.jit
def place(ptr, rows, stride):
    """Pointers to the first column of each row, as a column of the tile."""
    return ptr + rows.to(tl.int64)[:, None] * stride


@triton.jit
def load_tile(row_ptrs, cols, inside, other):
    """Columns `cols` of all rows in fp32."""
    return tl.load(row_ptrs + cols[None, :], mask=inside, other=other).to(tl.float32)


@triton.jit
def softmax_tiles(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    x_rows = place(x_ptr, rows, stride_x)
    y_rows = place(y_ptr, rows, stride_y)
    real = (rows < n_rows)[:, None]
    m = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        x = load_tile(x_rows, cols, real & (cols < n_cols)[None, :], -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        m = m_new
    # Rows past the end of the matrix: any finite numbers.
    m = tl.where(real, m, 0.0)
    d = tl.where(real, d, 1.0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        inside = real & (cols < n_cols)[None, :]
        y = tl.exp(load_tile(x_rows, cols, inside, -float("inf")) - m) / d
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


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
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    dy_rows = place(dy_ptr, rows, stride_dy)
    y_rows = place(y_ptr, rows, stride_y)
    dx_rows = place(dx_ptr, rows, stride_dx)
    real = (rows < n_rows)[:, None]
    products = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        inside = real & (cols < n_cols)[None, :]
        products += load_tile(dy_rows, cols, inside, 0.0) * load_tile(y_rows, cols, inside, 0.0)
    s = tl.sum(products, axis=0, keep_dims=True)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        inside = real & (cols < n_cols)[None, :]
        dx = load_tile(y_rows, cols, inside, 0.0) * (load_tile(dy_rows, cols, inside, 0.0) - s)
        tl.store(dx_rows + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)


def tile_for(n_cols: int):
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    return min(WIDEST // cols, MOST_ROWS), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); columns are contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, cols = tile_for(n_cols)
    softmax_tiles[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, cols = tile_for(n_cols)
    gradient_tiles[(triton.cdiv(n_rows, rows),)](
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
