# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: two-dimensional tiles of several narrow rows with a maximum per row, helper functions for loads and stores of tiles, and a constexpr branch `FITS` that reads a row that fits one tile only once and has no loop; exp2 with log2(e).
"""Softmax by tiles: a program has several narrow rows or one wide row, and reads a row that fits only once."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
WIDEST = 8192  # columns of a tile
ELEMENTS = 2048  # of a tile of narrow rows


@triton.jit
def get(ptr, rows, cols, n_rows, n_cols, stride, other):
    """A tile in fp32, `other` outside of the matrix."""
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=inside, other=other).to(tl.float32)


@triton.jit
def put(ptr, rows, cols, n_rows, n_cols, stride, tile):
    """Store the part of a tile that is in the matrix."""
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], tile.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def forward_tiles(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y,
    ROWS: tl.constexpr, COLS: tl.constexpr, FITS: tl.constexpr,
):  # fmt: skip
    """Rows from i * ROWS on belong to program i."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    if FITS:
        x = get(x_ptr, rows, lanes, n_rows, n_cols, stride_x, -float("inf"))
        # Rows past the last one are -inf throughout, and are not stored.
        top = tl.max(x, axis=1)
        top = tl.where(top == -float("inf"), 0.0, top)
        e = tl.exp2((x - top[:, None]) * LOG2E)
        total = tl.sum(e, axis=1)
        total = tl.where(rows < n_rows, total, 1.0)
        put(y_ptr, rows, lanes, n_rows, n_cols, stride_y, e / total[:, None])
    else:
        top = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
        total = tl.zeros((ROWS,), dtype=tl.float32)
        for start in range(0, n_cols, COLS):
            x = get(x_ptr, rows, start + lanes, n_rows, n_cols, stride_x, -float("inf"))
            higher = tl.maximum(top, tl.max(x, axis=1))
            shift = tl.where(higher == -float("inf"), 0.0, higher)
            e = tl.exp2((x - shift[:, None]) * LOG2E)
            total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(e, axis=1)
            top = higher
        for start in range(0, n_cols, COLS):
            x = get(x_ptr, rows, start + lanes, n_rows, n_cols, stride_x, -float("inf"))
            e = tl.exp2((x - top[:, None]) * LOG2E)
            put(y_ptr, rows, start + lanes, n_rows, n_cols, stride_y, e / total[:, None])


@triton.jit
def backward_tiles(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx,
    ROWS: tl.constexpr, COLS: tl.constexpr, FITS: tl.constexpr,
):  # fmt: skip
    """dx = y * (dy - s), s = sum of y * dy over a row; rows as in the forward kernel."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    if FITS:
        dy = get(dy_ptr, rows, lanes, n_rows, n_cols, stride_dy, 0.0)
        y = get(y_ptr, rows, lanes, n_rows, n_cols, stride_y, 0.0)
        s = tl.sum(dy * y, axis=1)
        put(dx_ptr, rows, lanes, n_rows, n_cols, stride_dx, y * (dy - s[:, None]))
    else:
        s = tl.zeros((ROWS,), dtype=tl.float32)
        for start in range(0, n_cols, COLS):
            dy = get(dy_ptr, rows, start + lanes, n_rows, n_cols, stride_dy, 0.0)
            y = get(y_ptr, rows, start + lanes, n_rows, n_cols, stride_y, 0.0)
            s += tl.sum(dy * y, axis=1)
        for start in range(0, n_cols, COLS):
            dy = get(dy_ptr, rows, start + lanes, n_rows, n_cols, stride_dy, 0.0)
            y = get(y_ptr, rows, start + lanes, n_rows, n_cols, stride_y, 0.0)
            put(dx_ptr, rows, start + lanes, n_rows, n_cols, stride_dx, y * (dy - s[:, None]))


def tiling(n_cols: int) -> dict:
    """Rows and columns of a tile, and whether a row fits."""
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"ROWS": min(max(ELEMENTS // cols, 1), 32), "COLS": cols, "FITS": n_cols <= cols}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); columns contiguous, any row stride."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    tile = tiling(n_cols)
    forward_tiles[(triton.cdiv(n_rows, tile["ROWS"]),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), num_warps=8 if n_cols > 4096 else 4, **tile
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y; columns contiguous, any row stride."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    tile = tiling(n_cols)
    backward_tiles[(triton.cdiv(n_rows, tile["ROWS"]),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        num_warps=16 if n_cols > 4096 else 8, **tile,
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
