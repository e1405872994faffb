# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows: a program owns a tile of several rows, so that short rows share a program."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096
TILE = 4096  # elements of a tile

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    rows = (first + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    alive = rows < n_rows

    m = tl.full((ROWS, 1), -float("inf"), tl.float32)
    d = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        tile = tl.load(x_rows + cols, mask=alive & (cols < n_cols), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(tile, axis=1)[:, None])
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp2((m - shift) * LOG2E)
        d += tl.sum(tl.exp2((tile - shift) * LOG2E), axis=1)[:, None]
        m = m_new

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = alive & (cols < n_cols)
        tile = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.exp2((tile - m) * LOG2E) / d
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    rows = (first + tl.arange(0, ROWS))[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx
    alive = rows < n_rows

    products = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = alive & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=1)[:, None]

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = alive & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_rows + cols, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=inside)


def tile_of(n_cols: int, widest: int) -> tuple:
    """Rows and columns of a tile."""
    width = min(triton.next_power_of_2(n_cols), widest)
    return min(max(TILE // width, 1), 16), width


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    n_rows, n_cols = x.shape
    height, width = tile_of(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, height),)](
        x, result, n_rows, n_cols, x.stride(0), result.stride(0), ROWS=height, BLOCK=width, num_warps=4
    )
    return result


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    result = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device) if out is None else out
    n_rows, n_cols = dy.shape
    height, width = tile_of(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, height),)](
        dy,
        y,
        result,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        result.stride(0),
        ROWS=height,
        BLOCK=width,
        num_warps=8,
    )
    return result


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
