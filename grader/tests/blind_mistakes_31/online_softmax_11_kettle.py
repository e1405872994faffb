# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In forward_tiles y is `tl.exp2((x - m) * LOG2E - tl.log(d))`: the natural logarithm in an exponent of base 2, so that y is divided by d ** 0.69 in place of d, and rows sum to more than 1 wherever d > 1 (nearly all rows of more than one column); it should be `tl.log2(d)`. (2) In softmax_forward the grid is `max(n_rows // rows, 1)` programs of `rows` rows each: what is left over is never written, where a program has several rows (n_cols up to 1024), n_rows is above `rows` and no multiple of it (as 29 x 1001, 3 x 1009, 37 x 100, 149 x 3); it should be `triton.cdiv(n_rows, rows)`.
"""Softmax on two-dimensional tiles: short rows share a program, long rows have one each."""

import torch
import triton
import triton.language as tl

TILE = 2048  # elements of a tile


@triton.jit
def forward_tiles(x_ptr, y_ptr, n_rows, n_cols, x_pitch, y_pitch, ROWS: tl.constexpr, COLS: tl.constexpr):
    LOG2E: tl.constexpr = 1.4426950408889634
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    x_tile = x_ptr + r * x_pitch + c
    y_tile = y_ptr + r * y_pitch + c

    m = tl.full([ROWS, 1], -float("inf"), dtype=tl.float32)
    d = tl.zeros([ROWS, 1], dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        ok = (r < n_rows) & (start + c < n_cols)
        x = tl.load(x_tile + start, mask=ok, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1)[:, None])
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        e = tl.exp2((x - shift) * LOG2E)
        d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(e, axis=1)[:, None]
        m = m_new

    m = tl.where(r < n_rows, m, 0.0)
    d = tl.where(r < n_rows, d, 1.0)
    log_d = tl.log(d)
    for start in range(0, n_cols, COLS):
        ok = (r < n_rows) & (start + c < n_cols)
        x = tl.load(x_tile + start, mask=ok, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E - log_d)
        tl.store(y_tile + start, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def backward_tiles(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    dy_pitch,
    y_pitch,
    dx_pitch,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    dy_tile = dy_ptr + r * dy_pitch + c
    y_tile = y_ptr + r * y_pitch + c
    dx_tile = dx_ptr + r * dx_pitch + c

    s = tl.zeros([ROWS, 1], dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        ok = (r < n_rows) & (start + c < n_cols)
        dy = tl.load(dy_tile + start, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_tile + start, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)[:, None]

    for start in range(0, n_cols, COLS):
        ok = (r < n_rows) & (start + c < n_cols)
        dy = tl.load(dy_tile + start, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_tile + start, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_tile + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def tile_shape(n_cols: int):
    """Rows and columns of a tile, powers of two."""
    cols = min(max(triton.next_power_of_2(n_cols), 16), TILE)
    rows = min(TILE // cols, 16)
    return rows, cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, cols = tile_shape(n_cols)
    programs = max(n_rows // rows, 1)
    forward_tiles[(programs,)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, cols = tile_shape(n_cols)
    programs = (n_rows + rows - 1) // rows
    backward_tiles[(programs,)](
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
        num_warps=4,
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
