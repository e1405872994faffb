# labs/lab2_online_softmax/online_softmax.py | corner | In `places`, `(rows[:, None] * stride).to(tl.int64)` widens after the product of two int32, which has wrapped by then; it must be `rows[:, None].to(tl.int64) * stride`. Shows only where a row begins beyond 2^31 elements (x or out with rows far apart, with a stride that itself fits int32, or a very large matrix).
"""Softmax over tiles of rows: short rows share a program, long rows have one of their own."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile
BACKWARD_BLOCK = 16384


@triton.jit
def places(ptr, rows, cols, stride):
    """Pointers to a tile: rows lie `stride` elements apart, columns are contiguous."""
    return ptr + (rows[:, None] * stride).to(tl.int64) + cols[None, :]


@triton.jit
def softmax_tiles_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i computes ROWS rows, BLOCK columns at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    row_mask = rows < n_rows
    m = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    d = tl.full([ROWS], 0.0, dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = row_mask[:, None] & (cols < n_cols)[None, :]
        x = tl.load(places(x_ptr, rows, cols, stride_x), mask=mask, other=-float("inf"))
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    m = tl.where(row_mask, m, 0.0)
    d = tl.where(row_mask, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = row_mask[:, None] & (cols < n_cols)[None, :]
        x = tl.load(places(x_ptr, rows, cols, stride_x), mask=mask, other=-float("inf"))
        y = tl.exp(x.to(tl.float32) - m[:, None]) / d[:, None]
        tl.store(places(y_ptr, rows, cols, stride_y), y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, of rows that may be any number of elements apart."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), TILE)
    rows = min(TILE // block, 16)
    softmax_tiles_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 32),
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
