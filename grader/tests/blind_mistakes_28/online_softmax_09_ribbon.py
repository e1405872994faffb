# labs/lab2_online_softmax/online_softmax.py | corner | online_softmax_kernel: y_rows = y_ptr + rows[:, None] * stride_y multiplies int32 row numbers by an int32 stride (x_rows converts to int64 first); where out reaches beyond 2^31 elements with a row stride below 2^31, the offset of the late rows wraps around and they are stored elsewhere; should be rows.to(tl.int64)[:, None] * stride_y
"""Online softmax; a program owns one long row or several short ones."""

import torch
import triton
import triton.language as tl

WIDEST = 8192
TILE = 2048  # elements of a tile of short rows
LOWEST = tl.constexpr(-3.0e38)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    exists = rows[:, None] < n_rows
    x_rows = x_ptr + rows.to(tl.int64)[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    lanes = tl.arange(0, BLOCK)[None, :]
    m = tl.full([ROWS, 1], LOWEST, dtype=tl.float32)
    d = tl.zeros([ROWS, 1], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_rows + cols, mask=exists & (cols < n_cols), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1)[:, None])
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=1)[:, None]
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_rows + cols, mask=exists & (cols < n_cols), other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=exists & (cols < n_cols))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    rows = min(max(TILE // block, 1), 16)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
