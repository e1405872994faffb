# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows, its gradient, and an autograd function. A program owns a band of rows, not one row."""

import torch
import triton
import triton.language as tl

WIDEST = 4096  # columns of a tile
TILE = 2048  # elements that the tile of a band of short rows should have


@triton.jit
def read_tile(ptr, rows, cols, stride, inside, fill: tl.constexpr):
    """One tile in fp32, with `fill` where there is no element."""
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=fill).to(tl.float32)


@triton.jit
def write_tile(ptr, rows, cols, stride, inside, values):
    tl.store(ptr + rows[:, None] * stride + cols[None, :], values.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BAND: tl.constexpr,
    WIDTH: tl.constexpr,
):
    rows = tl.program_id(axis=0).to(tl.int64) * BAND + tl.arange(0, BAND)
    exists = (rows < n_rows)[:, None]
    lanes = tl.arange(0, WIDTH)
    top = tl.full([BAND], -float("inf"), tl.float32)
    mass = tl.zeros([BAND], tl.float32)
    for start in range(0, n_cols, WIDTH):
        cols = start + lanes
        inside = exists & (cols < n_cols)[None, :]
        x = read_tile(x_ptr, rows, cols, stride_x, inside, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=1))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        mass = mass * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        top = higher
    # Rows behind the matrix have neither a maximum nor a sum. They are not stored, but should not divide by 0.
    top = tl.where(top == -float("inf"), 0.0, top)
    mass = tl.where(mass == 0.0, 1.0, mass)
    for start in range(0, n_cols, WIDTH):
        cols = start + lanes
        inside = exists & (cols < n_cols)[None, :]
        x = read_tile(x_ptr, rows, cols, stride_x, inside, -float("inf"))
        write_tile(y_ptr, rows, cols, stride_y, inside, tl.exp(x - top[:, None]) / mass[:, None])


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BAND: tl.constexpr,
    WIDTH: tl.constexpr,
):
    rows = tl.program_id(axis=0).to(tl.int64) * BAND + tl.arange(0, BAND)
    exists = (rows < n_rows)[:, None]
    lanes = tl.arange(0, WIDTH)
    dots = tl.zeros([BAND], tl.float32)
    for start in range(0, n_cols, WIDTH):
        cols = start + lanes
        inside = exists & (cols < n_cols)[None, :]
        dy = read_tile(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        y = read_tile(y_ptr, rows, cols, stride_y, inside, 0.0)
        dots += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, WIDTH):
        cols = start + lanes
        inside = exists & (cols < n_cols)[None, :]
        dy = read_tile(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        y = read_tile(y_ptr, rows, cols, stride_y, inside, 0.0)
        write_tile(dx_ptr, rows, cols, stride_dx, inside, y * (dy - dots[:, None]))


def tile_of(n_cols: int):
    """Rows and columns of a tile, and the warps that give a thread 16 elements of it."""
    width = min(triton.next_power_of_2(n_cols), WIDEST)
    band = min(max(TILE // width, 1), 16)
    return band, width, max(band * width // 512, 1)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    band, width, warps = tile_of(n_cols)
    online_softmax_kernel[(triton.cdiv(n_rows, band),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BAND=band, WIDTH=width, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    band, width, warps = tile_of(n_cols)
    softmax_backward_kernel[(triton.cdiv(n_rows, band),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BAND=band,
        WIDTH=width,
        num_warps=warps,
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
