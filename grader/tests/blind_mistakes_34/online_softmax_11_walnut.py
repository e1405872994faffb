# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel: in the first loop `tl.exp(x - shift)` subtracts a block of ROWS numbers, one for each row, from a tile of ROWS by BLOCK: it is broadcast along the columns, and the shapes do not fit (BLOCK against ROWS), so the kernel does not compile, nor run in the interpreter. Shows for rows of up to 1024 columns, where a program has 2 to 16 rows; longer rows (ROWS is 1) are right. Should be `x - shift[:, None]`.
"""Softmax with as many rows in a program as fill a tile of 2048 elements."""

import torch
import triton
import triton.language as tl

TILE = 2048
FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """ROWS short rows, or one long row in blocks."""
    row = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    x_tile_ptr = x_ptr + row[:, None] * stride_x + col[None, :]
    y_tile_ptr = y_ptr + row[:, None] * stride_y + col[None, :]
    is_row = row[:, None] < n_rows

    m = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    d = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = is_row & (col[None, :] < n_cols - start)
        x = tl.load(x_tile_ptr + start, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1)
        m = m_new

    top = m[:, None]
    share = 1.0 / d[:, None]
    for start in range(0, n_cols, BLOCK):
        mask = is_row & (col[None, :] < n_cols - start)
        x = tl.load(x_tile_ptr + start, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) * share
        tl.store(y_tile_ptr + start, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gradient in the same tiles."""
    row = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)
    dy_tile_ptr = dy_ptr + row[:, None] * stride_dy + col[None, :]
    y_tile_ptr = y_ptr + row[:, None] * stride_y + col[None, :]
    dx_tile_ptr = dx_ptr + row[:, None] * stride_dx + col[None, :]
    is_row = row[:, None] < n_rows

    s = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = is_row & (col[None, :] < n_cols - start)
        dy = tl.load(dy_tile_ptr + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_tile_ptr + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        mask = is_row & (col[None, :] < n_cols - start)
        dy = tl.load(dy_tile_ptr + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_tile_ptr + start, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_tile_ptr + start, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def tile(n_cols: int, widest: int):
    """Rows and columns of a tile."""
    block = clamp(triton.next_power_of_2(n_cols), 32, widest)
    return clamp(TILE // block, 1, 16), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = tile(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=clamp(block // 1024, 2, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, block = tile(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
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
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
