# labs/lab2_online_softmax/online_softmax.py | corner | The forward kernel handles a tile of several rows, but keeps one maximum for the whole tile: `tl.max(x)` reduces over both axes. A row whose values all lie about 100 or more below the maximum of a neighbour in its tile has only exponentials that vanish, its sum is 0 (replaced by 1), and its result is all zeros. Shows only in narrow matrices (up to 2048 columns, several rows in a program) whose rows lie at very different heights; elsewhere any common shift gives the same result. It should be one maximum for each row, `tl.max(x, axis=1)`, used as [:, None].
"""Softmax of rows in tiles: many narrow rows, or one piece of a wide row, in each step of a program."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile


@triton.jit
def tile_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    x_rows = x_ptr + (rows * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]

    m = -float("inf")
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        ok = row_ok & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=ok, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1)
        m = m_new

    # Rows past the last one have the sum 0.
    d = tl.where(d > 0.0, d, 1.0)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        ok = row_ok & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=ok, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def row_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, COLS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    s = 0.0
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        ok = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=ok, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=ok, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        ok = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def tile_for(n_cols: int) -> tuple:
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    return min(16, TILE // cols), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    rows, cols = tile_for(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    tile_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    cols = min(triton.next_power_of_2(n_cols), TILE)
    row_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), COLS=cols, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
