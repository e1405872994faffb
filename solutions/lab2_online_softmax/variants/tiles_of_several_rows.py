"""EXPECT PASS from softmax_forward and softmax_backward: a program owns several rows, in one tile."""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements that a program holds at a time


@triton.jit
def softmax_tiles_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    x_ptrs = x_ptr + rows[:, None] * stride_x + cols[None, :]
    y_ptrs = y_ptr + rows[:, None] * stride_y + cols[None, :]
    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for left in range(n_cols, 0, -COLS):
        mask = (rows < n_rows)[:, None] & (cols < left)[None, :]
        x = tl.load(x_ptrs, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, 1))
        # A row that does not exist, or is all -inf so far, is shifted by a number that is no -inf.
        shift = tl.maximum(m_new, -1e30)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), 1)
        m = m_new
        x_ptrs += COLS
    x_ptrs -= tl.cdiv(n_cols, COLS) * COLS
    for left in range(n_cols, 0, -COLS):
        mask = (rows < n_rows)[:, None] & (cols < left)[None, :]
        x = tl.load(x_ptrs, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptrs, tl.exp(x - m[:, None]) / d[:, None], mask=mask)
        x_ptrs += COLS
        y_ptrs += COLS


@triton.jit
def gradient_tiles_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    sums = tl.zeros([ROWS, COLS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        mask = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
        sums += dy * tl.load(y_ptr + rows * stride_y + cols, mask=mask, other=0.0).to(tl.float32)
    dot = tl.sum(sums, axis=1, keep_dims=True)  # (ROWS, 1)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        mask = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + rows * stride_y + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + rows * stride_dx + cols, y * (dy - dot), mask=mask)


def tile_for(n_cols):
    """(rows, columns): the shorter a row, the more of them."""
    cols = min(triton.next_power_of_2(n_cols), 2048)
    return min(TILE // cols, 16), cols


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    high, wide = tile_for(x.shape[1])
    softmax_tiles_kernel[(triton.cdiv(x.shape[0], high),)](
        x, out, *x.shape, x.stride(0), out.stride(0), ROWS=high, COLS=wide, num_warps=8
    )
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    high, wide = tile_for(y.shape[1])
    gradient_tiles_kernel[(triton.cdiv(y.shape[0], high),)](
        dy, y, out, *y.shape, dy.stride(0), y.stride(0), out.stride(0), ROWS=high, COLS=wide, num_warps=8
    )
    return out
