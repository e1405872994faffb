# labs/lab2_online_softmax/online_softmax.py | corner | In `tiled_softmax_kernel`, `total = total * tl.exp(top - shift) + tile_total * tl.exp(tile_top - shift)`: `tile_total` was already taken relative to `shift`, so the second factor is one too many; it should be `+ tile_total`. Wrong only in rows of more than one tile (more than 4096 columns), for tiles that do not raise the maximum (the sum is too small, rows sum to more than 1); right for one tile and hardly visible in ascending rows.
"""Softmax over rows of any length in two-dimensional tiles: a program owns one long row, or a few short ones."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile, at most
MOST_ROWS = 8


@triton.jit
def tile_offsets(first_row, n_rows, ROWS: tl.constexpr):
    """The rows of this program as a column, in int64, and which of them exist."""
    rows = first_row + tl.arange(0, ROWS)
    return rows.to(tl.int64)[:, None], (rows < n_rows)[:, None]


@triton.jit
def tiled_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Softmax of the rows pid * ROWS to pid * ROWS + ROWS - 1, COLS columns at a time."""
    rows, row_exists = tile_offsets(tl.program_id(axis=0) * ROWS, n_rows, ROWS)
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    top = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        x = tl.load(x_rows + cols, mask=row_exists & (cols < n_cols), other=-float("inf")).to(tl.float32)
        tile_top = tl.max(x, axis=1)
        new_top = tl.maximum(top, tile_top)
        # Where there was nothing but -inf so far, any finite number will do.
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        tile_total = tl.sum(tl.exp(x - shift[:, None]), axis=1)
        # The sums of the earlier tiles and of this one, on the scale of the new maximum.
        total = total * tl.exp(top - shift) + tile_total * tl.exp(tile_top - shift)
        top = new_top

    shift = tl.where(top == -float("inf"), 0.0, top)[:, None]
    share = (1.0 / tl.where(total > 0.0, total, 1.0))[:, None]  # rows that do not exist have no sum
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        mask = row_exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - shift) * share
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def tiled_gradient_kernel(
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
    """dx = y * (dy - sum of y * dy over the row), for the same rows and tiles."""
    rows, row_exists = tile_offsets(tl.program_id(axis=0) * ROWS, n_rows, ROWS)
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    s = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        mask = row_exists & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        mask = row_exists & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def tile_shape(n_cols: int):
    """Rows and columns of a tile: both powers of two, TILE elements at most."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // cols, MOST_ROWS), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    rows, cols = tile_shape(n_cols)
    tiled_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    rows, cols = tile_shape(n_cols)
    tiled_gradient_kernel[(triton.cdiv(n_rows, rows),)](
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
