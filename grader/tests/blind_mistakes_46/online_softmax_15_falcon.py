# labs/lab2_online_softmax/online_softmax.py | corner | In `tile_softmax_kernel`, `y_rows = y_ptr + (rows * stride_y).to(tl.int64)[:, None]` casts after the int32 product; it should be `(rows.to(tl.int64) * stride_y)[:, None]` as for x. Wraps around only where row * stride of the result reaches 2^31 elements (rows of `out` far apart, or a very large result); x is right there.
"""Softmax over rows of any length, in tiles: a program takes several narrow rows, or one wide row block by block."""

import torch
import triton
import triton.language as tl

WIDEST = 8192  # columns of a tile
TILE = 2048  # elements of a tile of narrow rows


@triton.jit
def tile_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Softmax of the rows pid * ROWS to pid * ROWS + ROWS - 1, each with a maximum and a sum of its own."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + (rows.to(tl.int64) * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y).to(tl.int64)[:, None]
    row_mask = (rows < n_rows)[:, None]
    top = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        mask = row_mask & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, axis=1))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        top = new_top
    # Rows behind the last one hold nothing: 0 and 1 keep their lanes finite, and nothing of them is stored.
    top = tl.where(rows < n_rows, top, 0.0)
    total = tl.where(rows < n_rows, total, 1.0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        mask = row_mask & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top[:, None]) / total[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def row_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, COLS: tl.constexpr
):
    """dx = y * (dy - sum of y * dy); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = tl.zeros((COLS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products += dy * tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    rows = min(max(TILE // cols, 1), 16)
    warps = min(max(rows * cols // 512, 1), 8)
    tile_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    row_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        COLS=cols, num_warps=min(max(cols // 512, 1), 16),
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
