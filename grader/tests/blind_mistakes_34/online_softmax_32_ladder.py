# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows in tiles: a program has one wide row or several narrow ones."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192
TILE = 1024  # elements of a tile of narrow rows


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
    r = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    x_ptrs = x_ptr + r * stride_x
    y_ptrs = y_ptr + r * stride_y
    m = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        held = (r < n_rows) & (start + c < n_cols)
        x = tl.load(x_ptrs + (start + c), mask=held, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        m = m_new
    # below the last row of the matrix nothing was added: 0 and 1 keep NaN out of lanes that nobody stores
    m = tl.where(r < n_rows, m, 0.0)
    d = tl.where(r < n_rows, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        held = (r < n_rows) & (start + c < n_cols)
        x = tl.load(x_ptrs + (start + c), mask=held, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs + (start + c), y.to(y_ptr.dtype.element_ty), mask=held)


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
    r = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, BLOCK)[None, :]
    dy_ptrs = dy_ptr + r * stride_dy
    y_ptrs = y_ptr + r * stride_y
    dx_ptrs = dx_ptr + r * stride_dx
    s = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        held = (r < n_rows) & (start + c < n_cols)
        dy = tl.load(dy_ptrs + (start + c), mask=held, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + (start + c), mask=held, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1, keep_dims=True)
    for start in range(0, n_cols, BLOCK):
        held = (r < n_rows) & (start + c < n_cols)
        dy = tl.load(dy_ptrs + (start + c), mask=held, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + (start + c), mask=held, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + (start + c), ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=held)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def tile(n_cols: int, widest: int):
    """Rows and columns of a tile, both powers of two."""
    block = clamp(triton.next_power_of_2(n_cols), 16, widest)
    return max(TILE // block, 1), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    rows, block = tile(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        y,
        n_rows,
        n_cols,
        x.stride(0),
        y.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=clamp(block // 1024, 2, 8),
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = y.shape
    dx = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device) if out is None else out
    rows, block = tile(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        dx,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        if dy is None:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
