# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) the forward kernel fills lanes past the end with `other=0.0`; must be -inf: each adds exp(0 - m) to d, and is the maximum of a row below 0; shows where n_cols is no multiple of the block. (2) the backward kernel stores dx in the same loop that still adds to dot; must have the sum of the whole row first, in a loop of its own: shows in rows longer than a block (2048).
"""Online softmax and its gradient, with a block of columns that moves along the row."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = tl.full((), -float("inf"), dtype=tl.float32)
    d = tl.zeros((), dtype=tl.float32)
    cols = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    for _ in range(blocks):
        x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        cols += BLOCK
    cols = tl.arange(0, BLOCK)
    for _ in range(blocks):
        x = tl.load(x_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        cols += BLOCK


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    dot = tl.zeros((), dtype=tl.float32)
    cols = tl.arange(0, BLOCK)
    for _ in range(tl.cdiv(n_cols, BLOCK)):
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)
        dx = y * (dy - dot)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        cols += BLOCK


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=min(BLOCK, triton.next_power_of_2(n_cols))
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(y)
    n_rows, n_cols = y.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=min(BLOCK, triton.next_power_of_2(n_cols)),
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
