# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_backward_kernel the tile of products is reduced along axis 0, the rows of the tile, and broadcast as [None, :], so s is a sum down the columns. It should be tl.sum(acc, axis=1)[:, None], one sum for each row.
"""Softmax and its gradient. The gradient takes tiles of eight rows."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 1024
TILE_ROWS = 8


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One program, one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        vals = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf"))
        vals = vals.to(tl.float32)
        m_next = tl.maximum(tl.max(vals, axis=0), m)
        base = tl.where(m_next == -float("inf"), 0.0, m_next)
        d = tl.sum(tl.exp(vals - base), axis=0) + d * tl.exp(m - base)
        m = m_next
    inv = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        vals = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf"))
        vals = tl.exp(vals.to(tl.float32) - m) * inv
        tl.store(y_row_ptr + offs, vals.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


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
    """One program, ROWS rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = rows[:, None] < n_rows
    dy_base = dy_ptr + rows[:, None] * stride_dy
    y_base = y_ptr + rows[:, None] * stride_y
    dx_base = dx_ptr + rows[:, None] * stride_dx

    acc = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_base + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_base + cols, mask=ok, other=0.0).to(tl.float32)
        acc += y * dy
    s = tl.sum(acc, axis=0)[None, :]

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_base + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_base + cols, mask=ok, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_base + cols, dx.to(dx_ptr.dtype.element_ty), mask=ok)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 4 if block <= 4096 else 8
    grid = (n_rows,)
    online_softmax_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, TILE_ROWS),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=TILE_ROWS,
        BLOCK=block,
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
