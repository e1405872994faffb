# labs/lab2_online_softmax/online_softmax.py | corner | The grid of softmax_forward is `n_rows // rows` (at least 1), rounded down, so the last n_rows % 4 rows are not computed; it must be cdiv(n_rows, rows). Shown by rows of at most 512 columns where n_rows is above 4 and no multiple of 4.
"""Softmax by block pointers: a program has a tile of several short rows, or one long row."""

import torch
import triton
import triton.language as tl


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(axis=0) * ROWS
    x_block = tl.make_block_ptr(x_ptr, (n_rows, n_cols), (stride_x, 1), (first, 0), (ROWS, BLOCK), (1, 0))
    y_block = tl.make_block_ptr(y_ptr, (n_rows, n_cols), (stride_y, 1), (first, 0), (ROWS, BLOCK), (1, 0))
    cols = tl.arange(0, BLOCK)[None, :]
    m = tl.full((ROWS,), float("-inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    again = x_block
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        x = tl.where(start + cols < n_cols, x, float("-inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
        x_block = tl.advance(x_block, (0, BLOCK))
    for start in range(0, n_cols, BLOCK):
        x = tl.load(again, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))
        again = tl.advance(again, (0, BLOCK))
        y_block = tl.advance(y_block, (0, BLOCK))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    first = tl.program_id(axis=0) * ROWS
    dy_block = tl.make_block_ptr(dy_ptr, (n_rows, n_cols), (stride_dy, 1), (first, 0), (ROWS, BLOCK), (1, 0))
    y_block = tl.make_block_ptr(y_ptr, (n_rows, n_cols), (stride_y, 1), (first, 0), (ROWS, BLOCK), (1, 0))
    dx_block = tl.make_block_ptr(dx_ptr, (n_rows, n_cols), (stride_dx, 1), (first, 0), (ROWS, BLOCK), (1, 0))
    dy_again = dy_block
    y_again = y_block
    s = tl.zeros((ROWS,), tl.float32)
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        s += tl.sum(dy * y, axis=1)
        dy_block = tl.advance(dy_block, (0, BLOCK))
        y_block = tl.advance(y_block, (0, BLOCK))
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_again, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        y = tl.load(y_again, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        tl.store(dx_block, (y * (dy - s[:, None])).to(dx_ptr.dtype.element_ty), boundary_check=(0, 1))
        dy_again = tl.advance(dy_again, (0, BLOCK))
        y_again = tl.advance(y_again, (0, BLOCK))
        dx_block = tl.advance(dx_block, (0, BLOCK))


def tile(n_cols: int, widest: int) -> tuple:
    """Rows and columns of a tile: four rows as long as a row is short."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return (4 if block <= 512 else 1), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, block = tile(n_cols, 8192)
    programs = max(1, n_rows // rows)
    online_softmax_kernel[(programs,)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, block = tile(n_cols, 4096)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
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
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
