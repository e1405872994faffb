# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax with several programs for each row.

Each row is cut into PARTS parts. A first kernel reduces each part to two numbers (one in the backward pass); a second kernel
merges the numbers of a row, every program for itself, and finishes its own part.
"""

import torch
import triton
import triton.language as tl

PARTS = 8  # a power of two
TILE = 2048


@triton.jit
def part_statistics(x_ptr, m_ptr, d_ptr, n_cols, stride_x, part_len, PARTS: tl.constexpr, TILE: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    first = part * part_len
    end = tl.minimum(first + part_len, n_cols)
    m = -float("inf")
    d = 0.0
    for start in range(first, end, TILE):
        cols = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < end, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    # a part without columns keeps -inf and 0, which count for nothing in the merge
    tl.store(m_ptr + row * PARTS + part, m)
    tl.store(d_ptr + row * PARTS + part, d)


@triton.jit
def part_normalise(
    x_ptr, y_ptr, m_ptr, d_ptr, n_cols, stride_x, stride_y, part_len, PARTS: tl.constexpr, TILE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    parts = row * PARTS + tl.arange(0, PARTS)
    ms = tl.load(m_ptr + parts)
    ds = tl.load(d_ptr + parts)
    m = tl.max(ms, axis=0)
    d = tl.sum(ds * tl.exp(ms - m), axis=0)
    first = part * part_len
    end = tl.minimum(first + part_len, n_cols)
    for start in range(first, end, TILE):
        cols = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < end, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < end)


@triton.jit
def part_dot(dy_ptr, y_ptr, s_ptr, n_cols, stride_dy, stride_y, part_len, PARTS: tl.constexpr, TILE: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    first = part * part_len
    end = tl.minimum(first + part_len, n_cols)
    products = tl.zeros([TILE], dtype=tl.float32)
    for start in range(first, end, TILE):
        cols = start + tl.arange(0, TILE)
        g = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < end, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < end, other=0.0).to(tl.float32)
        products += g * y
    tl.store(s_ptr + row * PARTS + part, tl.sum(products, axis=0))


@triton.jit
def part_gradient(
    dy_ptr,
    y_ptr,
    dx_ptr,
    s_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    part_len,
    PARTS: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    s = tl.sum(tl.load(s_ptr + row * PARTS + tl.arange(0, PARTS)), axis=0)
    first = part * part_len
    end = tl.minimum(first + part_len, n_cols)
    for start in range(first, end, TILE):
        cols = start + tl.arange(0, TILE)
        g = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < end, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < end, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + cols, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=cols < end)


def cut(n_cols: int):
    """Width of a tile, and columns of a part: a whole number of tiles."""
    share = triton.cdiv(n_cols, PARTS)
    tile = max(16, min(TILE, triton.next_power_of_2(share)))
    return tile, tile * triton.cdiv(share, tile)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    tile, part_len = cut(n_cols)
    m = torch.empty((n_rows, PARTS), dtype=torch.float32, device=x.device)
    d = torch.empty((n_rows, PARTS), dtype=torch.float32, device=x.device)
    grid = (n_rows, PARTS)
    part_statistics[grid](x, m, d, n_cols, x.stride(0), part_len, PARTS=PARTS, TILE=tile)
    part_normalise[grid](x, out, m, d, n_cols, x.stride(0), out.stride(0), part_len, PARTS=PARTS, TILE=tile)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    tile, part_len = cut(n_cols)
    s = torch.empty((n_rows, PARTS), dtype=torch.float32, device=y.device)
    grid = (n_rows, PARTS)
    part_dot[grid](dy, y, s, n_cols, dy.stride(0), y.stride(0), part_len, PARTS=PARTS, TILE=tile)
    part_gradient[grid](
        dy, y, out, s, n_cols, dy.stride(0), y.stride(0), out.stride(0), part_len, PARTS=PARTS, TILE=tile
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        # any distance between rows will do, also 0; columns must be neighbours
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
