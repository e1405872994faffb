# labs/lab2_online_softmax/online_softmax.py | right | Persistent programs in a while loop, tiles of LINES x LANES with a maximum and a sum in each lane, tl.reduce with an own combine function over pairs, the first tile kept in registers, and a second sweep backwards.
"""Softmax over rows of any length: persistent programs, lanes with a maximum and a sum each, and one tl.reduce a row."""

import torch
import triton
import triton.language as tl

LANES = 256  # of one line of a tile
LINES = 16  # of a tile, at most
PROGRAMS = 2112  # sixteen for each multiprocessor of an H200

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def shrink(d, m, new):
    """A sum d relative to m, relative to `new` instead, which is no lower."""
    return d * tl.exp2((m - new) * LOG2E)


@triton.jit
def finite(m):
    """m, or 0 where m is -inf."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def join(m1, d1, m2, d2):
    """The maximum of two lanes, and their sums relative to it."""
    m = tl.maximum(m1, m2)
    scale = finite(m)
    return m, shrink(d1, m1, scale) + shrink(d2, m2, scale)


@triton.jit
def scores(row_ptr, cols, n_cols):
    """Columns of a row in fp32, -inf past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def numbers(row_ptr, cols, n_cols):
    """Columns of a row in fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def softmax_rows_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    x_step,
    y_step,
    LINES: tl.constexpr,
    LANES: tl.constexpr,
):
    """Program p owns the rows p, p + programs, p + 2 * programs, ..."""
    tile = tl.arange(0, LINES)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    n_tiles = tl.cdiv(n_cols, LINES * LANES)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row_ptr = x_ptr + row * x_step
        y_row_ptr = y_ptr + row * y_step

        # The first tile is kept, and the others are read again on the way back.
        first = scores(x_row_ptr, tile, n_cols)
        lane_m = tl.max(first, axis=0)
        lane_d = tl.sum(shrink(1.0, first, finite(lane_m)[None, :]), axis=0)
        for i in range(1, n_tiles):
            x = scores(x_row_ptr, i * (LINES * LANES) + tile, n_cols)
            new_m = tl.maximum(lane_m, tl.max(x, axis=0))
            scale = finite(new_m)
            lane_d = shrink(lane_d, lane_m, scale) + tl.sum(shrink(1.0, x, scale[None, :]), axis=0)
            lane_m = new_m
        m, d = tl.reduce((lane_m, lane_d), 0, join)

        share = 1.0 / d
        for i in range(1, n_tiles):
            cols = (n_tiles - i) * (LINES * LANES) + tile
            y = shrink(share, scores(x_row_ptr, cols, n_cols), m)
            tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        y = shrink(share, first, m)
        tl.store(y_row_ptr + tile, y.to(y_ptr.dtype.element_ty), mask=tile < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def gradient_rows_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    dy_step,
    y_step,
    dx_step,
    LINES: tl.constexpr,
    LANES: tl.constexpr,
):
    """dx = y * (dy - s), s the sum of y * dy over the row, for the same rows."""
    tile = tl.arange(0, LINES)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row_ptr = dy_ptr + row * dy_step
        y_row_ptr = y_ptr + row * y_step
        dx_row_ptr = dx_ptr + row * dx_step
        lane_s = tl.zeros([LANES], tl.float32)
        for start in range(0, n_cols, LINES * LANES):
            products = numbers(dy_row_ptr, start + tile, n_cols) * numbers(y_row_ptr, start + tile, n_cols)
            lane_s += tl.sum(products, axis=0)
        s = tl.sum(lane_s, axis=0)
        for start in range(0, n_cols, LINES * LANES):
            cols = start + tile
            dx = numbers(y_row_ptr, cols, n_cols) * (numbers(dy_row_ptr, cols, n_cols) - s)
            tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def tile_of(n_cols: int):
    """Lines and lanes of a tile: powers of two, whose product is at most the next one above n_cols."""
    width = triton.next_power_of_2(n_cols)
    lanes = min(width, LANES)
    return min(width // lanes, LINES), lanes


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    lines, lanes = tile_of(n_cols)
    softmax_rows_kernel[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), LINES=lines, LANES=lanes, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    lines, lanes = tile_of(n_cols)
    gradient_rows_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        LINES=lines,
        LANES=lanes,
        num_warps=8,
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
