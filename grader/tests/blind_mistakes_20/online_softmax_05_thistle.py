# labs/lab2_online_softmax/online_softmax.py | error | The helper `put` converts with value.to(row_ptr.dtype), which is the type of the pointer and no number type, so both kernels fail to compile (cannot cast fp32 to a pointer). It should be row_ptr.dtype.element_ty.
"""Softmax and its gradient from three small helpers: columns of tile t, fetch, put."""

import torch
import triton
import triton.language as tl

TILE_FORWARD = 16384
TILE_BACKWARD = 8192


@triton.jit
def tile_columns(t, TILE: tl.constexpr):
    return t * TILE + tl.arange(0, TILE)


@triton.jit
def fetch(row_ptr, cols, n_cols, fill):
    """fp32 values of a row; `fill` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, value):
    tl.store(row_ptr + cols, value.to(row_ptr.dtype), mask=cols < n_cols)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, tiles, pitch_x, pitch_y, TILE: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * pitch_x
    y_row = y_ptr + row * pitch_y
    biggest = -float("inf")
    weight = 0.0
    for t in range(0, tiles):
        x = fetch(x_row, tile_columns(t, TILE), n_cols, -float("inf"))
        bigger = tl.maximum(biggest, tl.max(x, axis=0))
        origin = tl.where(bigger == -float("inf"), 0.0, bigger)
        weight = weight * tl.exp(biggest - origin) + tl.sum(tl.exp(x - origin), axis=0)
        biggest = bigger
    for t in range(0, tiles):
        cols = tile_columns(t, TILE)
        x = fetch(x_row, cols, n_cols, -float("inf"))
        put(y_row, cols, n_cols, tl.exp(x - biggest) / weight)


@triton.jit
def softmax_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, tiles, pitch_dy, pitch_y, pitch_dx, TILE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * pitch_dy
    y_row = y_ptr + row * pitch_y
    dx_row = dx_ptr + row * pitch_dx
    s = 0.0
    for t in range(0, tiles):
        cols = tile_columns(t, TILE)
        s += tl.sum(fetch(dy_row, cols, n_cols, 0.0) * fetch(y_row, cols, n_cols, 0.0), axis=0)
    for t in range(0, tiles):
        cols = tile_columns(t, TILE)
        dy = fetch(dy_row, cols, n_cols, 0.0)
        y = fetch(y_row, cols, n_cols, 0.0)
        put(dx_row, cols, n_cols, y * (dy - s))


def tiling(n_cols: int, widest: int):
    tile = max(16, min(triton.next_power_of_2(n_cols), widest))
    return tile, triton.cdiv(n_cols, tile)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    tile, tiles = tiling(n_cols, TILE_FORWARD)
    warps = 8 if tile == TILE_FORWARD else 4
    softmax_kernel[(n_rows,)](x, out, n_cols, tiles, x.stride(0), out.stride(0), TILE=tile, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    tile, tiles = tiling(n_cols, TILE_BACKWARD)
    softmax_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, tiles, dy.stride(0), y.stride(0), out.stride(0), TILE=tile, num_warps=8
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
