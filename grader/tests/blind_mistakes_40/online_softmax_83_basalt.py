# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `softmax_tiles`, `drop = tl.log(total)` is subtracted in an exponent of base 2 (`tl.exp2((x - top) * LOG2_E - drop)`); it should be `tl.log2(total)`. Each row is multiplied by total^(1 - ln 2) and sums to more than 1: in all cases, except where total is 1 (one column, or one value far above all others).
"""Softmax over rows of any length, its gradient, and both as an autograd function.

A program has a tile of ROWS rows, so that short rows fill its threads, and walks along the columns.
"""

import torch
import triton
import triton.language as tl

WIDEST = 8192  # columns of a tile
ELEMENTS = 2048  # of a tile with several rows
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_tile(base, rows, cols, stride, n_rows, n_cols, other):
    """A tile in fp32; rows is an int64 column, cols a row of numbers."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(base + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.jit
def store_tile(base, rows, cols, stride, n_rows, n_cols, tile):
    inside = (rows < n_rows) & (cols < n_cols)
    tl.store(base + rows * stride + cols, tile.to(base.dtype.element_ty), mask=inside)


@triton.jit
def softmax_tiles(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    top = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    total = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        x = load_tile(x_ptr, rows, start + lanes, stride_x, n_rows, n_cols, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        origin = tl.where(higher == -float("inf"), 0.0, higher)
        powers = tl.exp2((x - origin) * LOG2_E)
        total = total * tl.exp2((top - origin) * LOG2_E) + tl.sum(powers, axis=1, keep_dims=True)
        top = higher

    # Rows past the end have nothing; 1 and 0 keep their lanes finite, which are not stored.
    top = tl.where(rows < n_rows, top, 0.0)
    total = tl.where(rows < n_rows, total, 1.0)
    # The division goes into the exponent: one exp2 for each element and nothing else.
    drop = tl.log(total)
    for start in range(0, n_cols, COLS):
        x = load_tile(x_ptr, rows, start + lanes, stride_x, n_rows, n_cols, -float("inf"))
        y = tl.exp2((x - top) * LOG2_E - drop)
        store_tile(y_ptr, rows, start + lanes, stride_y, n_rows, n_cols, y)


@triton.jit
def gradient_tiles(
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
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    dot = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        dy = load_tile(dy_ptr, rows, start + lanes, stride_dy, n_rows, n_cols, 0.0)
        y = load_tile(y_ptr, rows, start + lanes, stride_y, n_rows, n_cols, 0.0)
        dot += tl.sum(dy * y, axis=1, keep_dims=True)
    for start in range(0, n_cols, COLS):
        dy = load_tile(dy_ptr, rows, start + lanes, stride_dy, n_rows, n_cols, 0.0)
        y = load_tile(y_ptr, rows, start + lanes, stride_y, n_rows, n_cols, 0.0)
        store_tile(dx_ptr, rows, start + lanes, stride_dx, n_rows, n_cols, y * (dy - dot))


def tile_of(n_cols: int) -> tuple:
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    return max(1, ELEMENTS // cols), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    rows, cols = tile_of(n_cols)
    softmax_tiles[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=8 if cols == WIDEST else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    rows, cols = tile_of(n_cols)
    gradient_tiles[(triton.cdiv(n_rows, rows),)](
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
        num_warps=16 if cols == WIDEST else 8 if cols > 2048 else 4,
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
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
