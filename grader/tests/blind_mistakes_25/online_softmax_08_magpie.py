# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows, in tiles of several rows.

A program owns ROWS rows and goes through them in tiles of (ROWS, BLOCK): many short rows at a time, or a long one
alone. The second sweep runs from the last tile to the first, because the last one is the freshest in the cache.
The backward kernel takes dy with any two strides, so that no layout of the gradient needs a copy.
"""

import torch
import triton
import triton.language as tl

WIDEST = 4096
TILE = 2048  # elements of a tile of short rows
MOST_ROWS = 16


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    n_tiles,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    own = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = (own < n_rows)[:, None]
    # Rows past the last one read the last one again. They are never stored.
    rows = tl.minimum(own, n_rows - 1)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]

    # The maximum starts at a finite number below all finite x. So no difference is -inf - -inf, and a tile of
    # nothing but -inf leaves both as they are: its exponentials are 0, and the factor is 1.
    m = tl.full((ROWS,), -1.0e38, dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for k in range(0, n_tiles):
        cols = k * BLOCK + lanes
        x = tl.load(x_ptr + rows * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=1))
        d = d * tl.exp(m - top) + tl.sum(tl.exp(x - top[:, None]), axis=1)
        m = top

    for k in range(0, n_tiles):
        cols = (n_tiles - 1 - k) * BLOCK + lanes
        x = tl.load(x_ptr + rows * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=exists & (cols < n_cols))


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    n_tiles,
    stride_dy,
    stride_dy_col,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    own = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = (own < n_rows)[:, None]
    rows = tl.minimum(own, n_rows - 1)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]

    products = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for k in range(0, n_tiles):
        cols = k * BLOCK + lanes
        dy_ptrs = dy_ptr + rows * stride_dy + cols.to(tl.int64) * stride_dy_col
        dy = tl.load(dy_ptrs, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + rows * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=1)[:, None]

    for k in range(0, n_tiles):
        cols = (n_tiles - 1 - k) * BLOCK + lanes
        dy_ptrs = dy_ptr + rows * stride_dy + cols.to(tl.int64) * stride_dy_col
        dy = tl.load(dy_ptrs, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + rows * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=exists & (cols < n_cols))


def tiling(n_rows: int, n_cols: int):
    """Programs, tiles of a row, rows and columns of a tile, warps."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    rows = max(1, min(MOST_ROWS, TILE // block))
    warps = 8 if block == WIDEST else 4
    return triton.cdiv(n_rows, rows), triton.cdiv(n_cols, block), rows, block, warps


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    programs, tiles, rows, block, warps = tiling(n_rows, n_cols)
    online_softmax_kernel[(programs,)](
        x, out, n_rows, n_cols, tiles, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy in any layout and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    programs, tiles, rows, block, warps = tiling(n_rows, n_cols)
    softmax_backward_kernel[(programs,)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        tiles,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=warps,
    )
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
        """dx from dy; the kernel goes by both strides of dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
