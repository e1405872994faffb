"""EXPECT PASS from softmax_forward and softmax_backward and softmax: pieces of a row, then a join.

Up to LIMIT columns a program has a whole row. Beyond, a row is cut into pieces of PIECE columns that are
worked on side by side; every piece leaves its maximum and sum in a small scratch matrix, (n_rows, pieces).
"""

from typing import Tuple

import torch
import triton
import triton.language as tl

BLOCK = 4096
PIECE = 4 * BLOCK
LIMIT = 2 * PIECE


@triton.jit
def stats(x_row, begin, end, BLOCK: tl.constexpr):
    """Maximum, and sum relative to it, of the columns from begin to end - 1. (-inf, 0) if all are -inf."""
    m = -float("inf")
    d = 0.0
    for start in range(begin, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < end, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def normalise(x_row, y_row, begin, end, m, d, BLOCK: tl.constexpr):
    for start in range(begin, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < end, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_row.dtype.element_ty), mask=cols < end)


@triton.jit
def row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m, d = stats(x_ptr + row * stride_x, 0, n_cols, BLOCK)
    normalise(x_ptr + row * stride_x, y_ptr + row * stride_y, 0, n_cols, m, d, BLOCK)


@triton.jit
def piece_stats_kernel(x_ptr, m_ptr, d_ptr, n_cols, stride_x, PIECE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    begin = piece * PIECE
    m, d = stats(x_ptr + row * stride_x, begin, tl.minimum(begin + PIECE, n_cols), BLOCK)
    slot = row * tl.num_programs(1) + piece
    tl.store(m_ptr + slot, m)
    tl.store(d_ptr + slot, d)


@triton.jit
def piece_normalise_kernel(
    x_ptr, y_ptr, m_ptr, d_ptr, n_cols, stride_x, stride_y,
    PIECE: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    pieces = tl.num_programs(1)
    slots = tl.arange(0, SLOTS)
    ms = tl.load(m_ptr + row * pieces + slots, mask=slots < pieces, other=-float("inf"))
    ds = tl.load(d_ptr + row * pieces + slots, mask=slots < pieces, other=0.0)
    m = tl.max(ms, axis=0)  # finite: the row has a finite value somewhere
    d = tl.sum(ds * tl.exp(ms - m), axis=0)
    begin = tl.program_id(1) * PIECE
    end = tl.minimum(begin + PIECE, n_cols)
    normalise(x_ptr + row * stride_x, y_ptr + row * stride_y, begin, end, m, d, BLOCK)


@triton.jit
def dot_of(a_row, b_row, begin, end, BLOCK: tl.constexpr):
    s = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(begin, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        a = tl.load(a_row + cols, mask=cols < end, other=0.0).to(tl.float32)
        b = tl.load(b_row + cols, mask=cols < end, other=0.0).to(tl.float32)
        s += a * b
    return tl.sum(s, axis=0)


@triton.jit
def store_dx(dy_row, y_row, dx_row, begin, end, s, BLOCK: tl.constexpr):
    for start in range(begin, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < end, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < end, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_row.dtype.element_ty), mask=cols < end)


@triton.jit
def row_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = dot_of(dy_ptr + row * stride_dy, y_ptr + row * stride_y, 0, n_cols, BLOCK)
    store_dx(dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx, 0, n_cols, s, BLOCK)


@triton.jit
def piece_dot_kernel(
    dy_ptr, y_ptr, s_ptr, n_cols, stride_dy, stride_y, PIECE: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * PIECE
    end = tl.minimum(begin + PIECE, n_cols)
    s = dot_of(dy_ptr + row * stride_dy, y_ptr + row * stride_y, begin, end, BLOCK)
    tl.store(s_ptr + row * tl.num_programs(1) + tl.program_id(1), s)


@triton.jit
def piece_dx_kernel(
    dy_ptr, y_ptr, dx_ptr, s_ptr, n_cols, stride_dy, stride_y, stride_dx,
    PIECE: tl.constexpr, BLOCK: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    pieces = tl.num_programs(1)
    slots = tl.arange(0, SLOTS)
    s = tl.sum(tl.load(s_ptr + row * pieces + slots, mask=slots < pieces, other=0.0), axis=0)
    begin = tl.program_id(1) * PIECE
    end = tl.minimum(begin + PIECE, n_cols)
    store_dx(dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx, begin, end, s, BLOCK)


def _scratch(like: torch.Tensor, *shape: int) -> torch.Tensor:
    return like.new_empty(shape, dtype=torch.float32)


def _sizes(x: torch.Tensor) -> Tuple[int, int, int, int]:
    """n_rows, n_cols, pieces of a row, width of a block."""
    n_rows, n_cols = x.shape
    pieces = 1 if n_cols <= LIMIT else triton.cdiv(n_cols, PIECE)
    return n_rows, n_cols, pieces, min(BLOCK, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols, pieces, block = _sizes(x)
    sx, sy = x.stride(0), out.stride(0)
    if pieces == 1:
        row_kernel[(n_rows,)](x, out, n_cols, sx, sy, BLOCK=block, num_warps=4)
    else:
        m, d = _scratch(x, n_rows, pieces), _scratch(x, n_rows, pieces)
        grid = (n_rows, pieces)
        piece_stats_kernel[grid](x, m, d, n_cols, sx, PIECE=PIECE, BLOCK=block, num_warps=4)
        slots = triton.next_power_of_2(pieces)
        piece_normalise_kernel[grid](
            x, out, m, d, n_cols, sx, sy, PIECE=PIECE, BLOCK=block, SLOTS=slots, num_warps=4
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols, pieces, block = _sizes(y)
    sg, sy, sx = dy.stride(0), y.stride(0), out.stride(0)
    if pieces == 1:
        row_backward_kernel[(n_rows,)](dy, y, out, n_cols, sg, sy, sx, BLOCK=block, num_warps=8)
    else:
        s = _scratch(y, n_rows, pieces)
        grid = (n_rows, pieces)
        piece_dot_kernel[grid](dy, y, s, n_cols, sg, sy, PIECE=PIECE, BLOCK=block, num_warps=8)
        slots = triton.next_power_of_2(pieces)
        piece_dx_kernel[grid](
            dy, y, out, s, n_cols, sg, sy, sx, PIECE=PIECE, BLOCK=block, SLOTS=slots, num_warps=8
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
