# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In backward_tiles_kernel `s = tl.sum(products)` sums over both axes of the tile, so all rows of a program share one s; it should be `tl.sum(products, axis=1)[:, None]`. A tile has 2 to 16 rows, so dx is wrong in every matrix of more than one row (a single row is right).
"""Softmax over rows of any length and its gradient, in tiles of several rows."""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements in one tile
WIDEST = 4096  # columns in one tile


@triton.jit
def load_tile(ptr, rows, cols, stride, n_rows, n_cols, other):
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=mask, other=other).to(tl.float32)


@triton.jit
def store_tile(ptr, rows, cols, stride, n_rows, n_cols, value):
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    tl.store(ptr + rows[:, None] * stride + cols[None, :], value.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def forward_tiles_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program i owns rows i * ROWS to (i + 1) * ROWS - 1."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        x = load_tile(x_ptr, rows, start + lanes, stride_x, n_rows, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    for start in range(0, n_cols, COLS):
        x = load_tile(x_ptr, rows, start + lanes, stride_x, n_rows, n_cols, -float("inf"))
        y = tl.exp(x - m[:, None]) / d[:, None]
        store_tile(y_ptr, rows, start + lanes, stride_y, n_rows, n_cols, y)


@triton.jit
def backward_tiles_kernel(
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
    """dx = y * (dy - s), s = sum of y * dy over a row; rows as in the forward kernel."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    products = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, n_cols, COLS):
        dy = load_tile(dy_ptr, rows, start + lanes, stride_dy, n_rows, n_cols, 0.0)
        y = load_tile(y_ptr, rows, start + lanes, stride_y, n_rows, n_cols, 0.0)
        products += dy * y
    s = tl.sum(products)
    for start in range(0, n_cols, COLS):
        dy = load_tile(dy_ptr, rows, start + lanes, stride_dy, n_rows, n_cols, 0.0)
        y = load_tile(y_ptr, rows, start + lanes, stride_y, n_rows, n_cols, 0.0)
        store_tile(dx_ptr, rows, start + lanes, stride_dx, n_rows, n_cols, y * (dy - s))


def tile_of(n_cols: int) -> tuple:
    """Rows and columns of a tile: two rows at least, and sixteen at most."""
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    return min(16, TILE // cols), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    rows, cols = tile_of(n_cols)
    forward_tiles_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    rows, cols = tile_of(n_cols)
    backward_tiles_kernel[(triton.cdiv(n_rows, rows),)](
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
        num_warps=16,
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
