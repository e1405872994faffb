# labs/lab2_online_softmax/online_softmax.py | corner | In `online_softmax_kernel`, `m_new = tl.maximum(m, tl.max(tl.max(x, axis=1), axis=0))` is one maximum for all rows of a tile; it should be one per row, `tl.maximum(m, tl.max(x, axis=1))` with m of shape (ROWS,). Shows only for at most 1024 columns (ROWS of 2 or more) where rows of one tile differ by about 87 or more, e.g. every second row far below 0: the exponents of the low row vanish, 0 / 0 is NaN.
"""Softmax over rows of any length; narrow rows share a program. Its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

WIDEST = 4096  # columns of a tile
TILE = 2048  # elements of a tile of narrow rows
MOST_ROWS = 16


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program i owns ROWS rows from i * ROWS on, and walks over them in tiles of COLS columns."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    row_exists = (rows < n_rows)[:, None]
    m = -float("inf")
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        exists = row_exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=exists, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(tl.max(x, axis=1), axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1)
        m = m_new
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        exists = row_exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=exists, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=exists)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """dx = y * (dy - s), s = sum of y * dy over a row; rows and tiles as in the forward kernel."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    row_exists = (rows < n_rows)[:, None]
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        exists = row_exists & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=exists, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=exists, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        exists = row_exists & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=exists, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=exists, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=exists)


def tile_of(n_cols: int) -> tuple:
    """Rows and columns of a tile, powers of two."""
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    return min(max(TILE // cols, 1), MOST_ROWS), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    rows, cols = tile_of(n_cols)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    rows, cols = tile_of(n_cols)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=8
    )  # fmt: skip
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
