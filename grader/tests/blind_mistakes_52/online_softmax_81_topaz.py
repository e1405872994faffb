# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: four kernels. Narrow rows (up to 2048 columns) share a two-dimensional tile and are read once; wide rows are taken as tiles of 4 lines of 1024 lanes, with a maximum and a sum for each lane in the forward pass.
"""Softmax with two kernels for each direction: narrow rows share a tile, and a wide row is cut into tiles."""

import torch
import triton
import triton.language as tl

NARROW = 2048  # the widest row that fits a tile
ELEMENTS = 4096  # of a tile of narrow rows
LINES, LANES = 4, 1024  # of a tile of a wide row


@triton.jit
def narrow_forward(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr):
    """ROWS whole rows for a program; they are read once."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x = tl.load(x_ptr + (rows * stride_x)[:, None] + cols[None, :], mask=mask, other=-float("inf"))
    x = x.to(tl.float32)
    # Rows behind the last one are full of -inf, and are not stored.
    top = tl.where(rows < n_rows, tl.max(x, axis=1), 0.0)
    e = tl.exp(x - top[:, None])
    total = tl.where(rows < n_rows, tl.sum(e, axis=1), 1.0)
    y = (e / total[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + (rows * stride_y)[:, None] + cols[None, :], y, mask=mask)


@triton.jit
def narrow_backward(
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
    """The gradient of ROWS whole rows."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    dy = tl.load(dy_ptr + (rows * stride_dy)[:, None] + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + (rows * stride_y)[:, None] + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    s = tl.sum(y * dy, axis=1)
    dx = (y * (dy - s[:, None])).to(dx_ptr.dtype.element_ty)
    tl.store(dx_ptr + (rows * stride_dx)[:, None] + cols[None, :], dx, mask=mask)


@triton.jit
def columns(LINES: tl.constexpr, LANES: tl.constexpr):
    """Columns of the first tile of a row, LINES lines of LANES."""
    return tl.arange(0, LINES)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def wide_forward(x_ptr, y_ptr, n_cols, stride_x, stride_y, LINES: tl.constexpr, LANES: tl.constexpr):
    """One row for a program, a tile at a time; the lanes have maxima and sums of their own."""
    x_ptr += tl.program_id(0).to(tl.int64) * stride_x
    y_ptr += tl.program_id(0).to(tl.int64) * stride_y
    top = tl.full((LANES,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((LANES,), dtype=tl.float32)
    for first in range(0, n_cols, LINES * LANES):
        cols = first + columns(LINES, LANES)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[None, :]), axis=0)
        top = higher
    # Some lanes may have had nothing but -inf; the maximum of them all is finite.
    row_top = tl.max(top, axis=0)
    row_total = tl.sum(total * tl.exp(top - row_top), axis=0)
    for first in range(0, n_cols, LINES * LANES):
        cols = first + columns(LINES, LANES)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - row_top) / row_total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def wide_backward(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    LINES: tl.constexpr,
    LANES: tl.constexpr,
):
    """The gradient of one row, a tile at a time."""
    dy_ptr += tl.program_id(0).to(tl.int64) * stride_dy
    y_ptr += tl.program_id(0).to(tl.int64) * stride_y
    dx_ptr += tl.program_id(0).to(tl.int64) * stride_dx
    s = 0.0
    for first in range(0, n_cols, LINES * LANES):
        cols = first + columns(LINES, LANES)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(tl.sum(y * dy, axis=0), axis=0)
    for first in range(0, n_cols, LINES * LANES):
        cols = first + columns(LINES, LANES)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def narrow(n_rows: int, n_cols: int):
    """Grid and constants of a launch for narrow rows."""
    cols = triton.next_power_of_2(n_cols)
    rows = min(ELEMENTS // cols, 32)
    return (triton.cdiv(n_rows, rows),), {"ROWS": rows, "COLS": cols, "num_warps": 8 if cols > 128 else 4}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    if n_cols <= NARROW:
        grid, constants = narrow(n_rows, n_cols)
        narrow_forward[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **constants)
    else:
        wide_forward[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), LINES=LINES, LANES=LANES, num_warps=4
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    if n_cols <= NARROW:
        grid, constants = narrow(n_rows, n_cols)
        narrow_backward[grid](dy, y, out, n_rows, n_cols, *strides, **constants)
    else:
        wide_backward[(n_rows,)](
            dy, y, out, n_cols, *strides, LINES=LINES, LANES=LANES, num_warps=8
        )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Both directions for autograd."""

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
