# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax, forward and backward, on tiles of ROWS x BLOCK elements."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile
MAX_ROWS = 16
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def _read(ptr, rows, cols, n_rows, n_cols, stride, fill):
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=fill).to(tl.float32)


@triton.jit
def _write(ptr, rows, cols, n_rows, n_cols, stride, values):
    inside = (rows < n_rows) & (cols < n_cols)
    tl.store(ptr + rows * stride + cols, values.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    m = tl.full((ROWS, 1), LOWEST, dtype=tl.float32)
    d = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = _read(x_ptr, rows, start + lane, n_rows, n_cols, stride_x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=1, keep_dims=True)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = _read(x_ptr, rows, start + lane, n_rows, n_cols, stride_x, -float("inf"))
        _write(y_ptr, rows, start + lane, n_rows, n_cols, stride_y, tl.exp(x - m) / d)


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
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    s = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy = _read(dy_ptr, rows, start + lane, n_rows, n_cols, stride_dy, 0.0)
        y = _read(y_ptr, rows, start + lane, n_rows, n_cols, stride_y, 0.0)
        s += tl.sum(dy * y, axis=1, keep_dims=True)
    for start in range(0, n_cols, BLOCK):
        dy = _read(dy_ptr, rows, start + lane, n_rows, n_cols, stride_dy, 0.0)
        y = _read(y_ptr, rows, start + lane, n_rows, n_cols, stride_y, 0.0)
        _write(dx_ptr, rows, start + lane, n_rows, n_cols, stride_dx, y * (dy - s))


def tile_of(n_cols: int) -> tuple:
    """Rows and columns of a tile."""
    block = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // block, MAX_ROWS), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, block = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_backward_kernel[grid](
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
