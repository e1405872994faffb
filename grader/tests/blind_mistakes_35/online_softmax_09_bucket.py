# labs/lab2_online_softmax/online_softmax.py | error | In softmax_tile_kernel, second loop, m has shape [ROWS] = [4] and is subtracted from a tile of shape [ROWS, BLOCK] without m[:, None]: tl.exp(x - m). BLOCK is at least 64, so the shapes never fit, and Triton stops with "Cannot make_shape_compatible: incompatible dimensions" in every call of the forward pass; softmax_backward alone runs. Should be tl.exp(x - m[:, None]).
"""Softmax with tiles of four rows: short rows share a program."""

import torch
import triton
import triton.language as tl

ROWS_PER_TILE = 4
NARROWEST = 64
WIDEST = 2048


@triton.jit
def softmax_tile_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Softmax of rows program_id * ROWS and following."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    row_exists = rows[:, None] < n_rows

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        mask = row_exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        mask = row_exists & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - m) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_tile_backward_kernel(
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
    """Gradient of rows program_id * ROWS and following."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    row_exists = rows[:, None] < n_rows

    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        mask = row_exists & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        mask = row_exists & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def tile_width(n_cols: int) -> int:
    """Columns of a tile: a power of two."""
    return min(max(triton.next_power_of_2(n_cols), NARROWEST), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS_PER_TILE),)
    softmax_tile_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_TILE,
        BLOCK=tile_width(n_cols),
        num_warps=8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    grid = (triton.cdiv(n_rows, ROWS_PER_TILE),)
    softmax_tile_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS_PER_TILE,
        BLOCK=tile_width(n_cols),
        num_warps=8,
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
