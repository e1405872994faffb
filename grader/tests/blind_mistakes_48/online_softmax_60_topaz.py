# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `gradient_tile_kernel`, `s = tl.sum(products, axis=0, keep_dims=True)` sums over the rows of the tile; it should be `axis=1`, the sum along each row. Shows in all cases of softmax_backward and of the gradient of softmax, but for rows of one column.
"""Softmax over rows and its gradient, by tiles of several rows where the rows are short."""

import torch
import triton
import triton.language as tl

TILE_COLS = 4096  # columns of a tile at most
TILE_SIZE = 2048  # elements of a tile of short rows


@triton.jit
def softmax_tile_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program i owns rows i * ROWS to (i + 1) * ROWS - 1, and takes COLS columns of them at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + rows.to(tl.int64)[:, None] * stride_x
    y_rows = y_ptr + rows.to(tl.int64)[:, None] * stride_y
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=inside, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # Rows behind the last one have no maximum and no sum.
    m = tl.where(rows < n_rows, m, 0.0)
    d = tl.where(rows < n_rows, d, 1.0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m[:, None]) / d[:, None]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gradient_tile_kernel(
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
    """Gradient of the same rows; the products are gathered in a tile, which is reduced once."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    wide = rows.to(tl.int64)
    dy_rows = dy_ptr + wide * stride_dy
    y_rows = y_ptr + wide * stride_y
    dx_rows = dx_ptr + wide * stride_dx
    products = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0, keep_dims=True)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_rows + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def tile_of(n_cols: int) -> tuple:
    """Rows and columns of a tile, and the warps that work on it."""
    cols = min(triton.next_power_of_2(n_cols), TILE_COLS)
    rows = min(max(TILE_SIZE // cols, 1), 16)
    return rows, cols, 8 if rows * cols > TILE_SIZE else 4


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, cols, warps = tile_of(n_cols)
    softmax_tile_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    rows, cols, warps = tile_of(n_cols)
    gradient_tile_kernel[(triton.cdiv(n_rows, rows),)](
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
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; y is all that the gradient needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy, which may have any layout."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
