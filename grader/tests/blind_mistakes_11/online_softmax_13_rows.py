# labs/lab2_online_softmax/online_softmax.py | right | several short rows in one program as a tile of ROWS x BLOCK, masked in both directions, with vectors m and d; n_rows is an argument of the kernels; int64 row numbers.
"""Online softmax, several rows in a program where they are short."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile, whatever its shape


@triton.jit
def tile_load(ptr, rows, cols, n_rows, n_cols, stride, fill):
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=mask, other=fill).to(tl.float32)


@triton.jit
def tile_store(ptr, rows, cols, n_rows, n_cols, stride, values):
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], values.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def forward_tiles(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tile_load(x_ptr, rows, cols, n_rows, n_cols, stride_x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # Rows past the end have seen nothing: any finite numbers keep NaN out of their lanes.
    m = tl.where(rows < n_rows, m, 0.0)
    d = tl.where(rows < n_rows, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tile_load(x_ptr, rows, cols, n_rows, n_cols, stride_x, -float("inf"))
        y = tl.exp(x - m[:, None]) / d[:, None]
        tile_store(y_ptr, rows, cols, n_rows, n_cols, stride_y, y)


@triton.jit
def backward_tiles(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tile_load(dy_ptr, rows, cols, n_rows, n_cols, stride_dy, 0.0)
        y = tile_load(y_ptr, rows, cols, n_rows, n_cols, stride_y, 0.0)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tile_load(dy_ptr, rows, cols, n_rows, n_cols, stride_dy, 0.0)
        y = tile_load(y_ptr, rows, cols, n_rows, n_cols, stride_y, 0.0)
        tile_store(dx_ptr, rows, cols, n_rows, n_cols, stride_dx, y * (dy - s[:, None]))


def tile_shape(n_cols: int) -> tuple[int, int]:
    """Rows and columns of a tile: at most 8 rows, at most TILE elements."""
    block = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // block, 8), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = tile_shape(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    forward_tiles[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(y, memory_format=torch.contiguous_format)
    n_rows, n_cols = y.shape
    rows, block = tile_shape(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    strides = [t.stride(0) for t in (dy, y, out)]
    backward_tiles[grid](dy, y, out, n_rows, n_cols, *strides, ROWS=rows, BLOCK=block, num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
