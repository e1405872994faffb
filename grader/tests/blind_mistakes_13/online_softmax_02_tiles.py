# labs/lab2_online_softmax/online_softmax.py | right | Right in every respect; unusual: a program owns a 2-D tile of several rows with a mask for rows and columns, and the maximum starts at a finite number below all finite values, so that no case for -inf is needed.
"""Softmax, several rows for each program: tiles of ROWS x COLS elements that slide over the columns."""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements of a tile
MOST_ROWS = 16
BOTTOM = tl.constexpr(-3.0e38)  # below every finite value that may occur, and finite itself


@triton.jit
def forward_tiles(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    alive = r < n_rows
    x_rows = x_ptr + r[:, None] * stride_x
    y_rows = y_ptr + r[:, None] * stride_y

    top = tl.full((ROWS,), BOTTOM, dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        c = start + tl.arange(0, COLS)
        inside = alive[:, None] & (c < n_cols)[None, :]
        x = tl.load(x_rows + c[None, :], mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
        top = higher

    # Rows below the matrix have added nothing: give them something to divide by.
    total = tl.where(alive, total, 1.0)
    for start in range(0, n_cols, COLS):
        c = start + tl.arange(0, COLS)
        inside = alive[:, None] & (c < n_cols)[None, :]
        x = tl.load(x_rows + c[None, :], mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top[:, None]) / total[:, None]
        tl.store(y_rows + c[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_tiles(
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
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    alive = r < n_rows
    dy_rows = dy_ptr + r[:, None] * stride_dy
    y_rows = y_ptr + r[:, None] * stride_y
    dx_rows = dx_ptr + r[:, None] * stride_dx

    dots = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        c = start + tl.arange(0, COLS)
        inside = alive[:, None] & (c < n_cols)[None, :]
        dy = tl.load(dy_rows + c[None, :], mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + c[None, :], mask=inside, other=0.0).to(tl.float32)
        dots += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, COLS):
        c = start + tl.arange(0, COLS)
        inside = alive[:, None] & (c < n_cols)[None, :]
        dy = tl.load(dy_rows + c[None, :], mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + c[None, :], mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_rows + c[None, :], (y * (dy - dots[:, None])).to(dx_ptr.dtype.element_ty), mask=inside)


def tile_shape(n_cols: int) -> tuple:
    """Rows and columns of a tile."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    rows = min(TILE // cols, MOST_ROWS)
    return rows, cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    rows, cols = tile_shape(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    forward_tiles[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    rows, cols = tile_shape(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    backward_tiles[grid](
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
        num_warps=16,
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
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
