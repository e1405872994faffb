# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: two-dimensional (ROWS, COLS) tiles in both passes, up to 16 short rows in one program, strips of a long row, sums along axis 1.
"""Softmax and its gradient on two-dimensional tiles: several short rows, or one strip of a long row."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile
MAX_ROWS = 16


@triton.jit
def _tile_at(ptr, rows, cols, stride, inside, other):
    """One tile as fp32, with `other` where it lies outside of the matrix."""
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=other).to(tl.float32)


@triton.jit
def _forward_tiles(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        x = _tile_at(x_ptr, rows, cols, stride_x, row_ok & (cols < n_cols)[None, :], -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # Rows below the last one have no finite value; they are not stored.
    m = tl.where(m == -float("inf"), 0.0, m)
    d = tl.where(d == 0.0, 1.0, d)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        inside = row_ok & (cols < n_cols)[None, :]
        x = _tile_at(x_ptr, rows, cols, stride_x, inside, -float("inf"))
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(
            y_ptr + rows[:, None] * stride_y + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside
        )


@triton.jit
def _backward_tiles(
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
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    s = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        inside = row_ok & (cols < n_cols)[None, :]
        dy = _tile_at(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        y = _tile_at(y_ptr, rows, cols, stride_y, inside, 0.0)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        inside = row_ok & (cols < n_cols)[None, :]
        dy = _tile_at(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        y = _tile_at(y_ptr, rows, cols, stride_y, inside, 0.0)
        dx = y * (dy - s[:, None])
        tl.store(
            dx_ptr + rows[:, None] * stride_dx + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside
        )


def tile_shape(n_rows: int, n_cols: int) -> tuple:
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    rows = min(TILE // cols, MAX_ROWS, triton.next_power_of_2(n_rows))
    return rows, cols


def warps_for(rows: int, cols: int) -> int:
    """One warp for each 512 elements, up to 8."""
    return min(max(rows * cols // 512, 1), 8)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    rows, cols = tile_shape(n_rows, n_cols)
    _forward_tiles[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=warps_for(rows, cols),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, columns contiguous."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    rows, cols = tile_shape(n_rows, n_cols)
    _backward_tiles[(triton.cdiv(n_rows, rows),)](
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
        num_warps=warps_for(rows, cols),
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
