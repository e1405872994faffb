# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `online_softmax_kernel`, `factor = tl.where(m_new - m > RISE, tl.exp(m - shift), 1.0)` leaves d on the old scale after a rise of up to 8, but `m = m_new` moves m all the same; m must stay the old one in that case, or the factor must always be `tl.exp(m - shift)`. It shows in rows longer than 2048 columns whose maximum rises a little in a later block (ascending, 16385, 40000, 131072). (2) `y_ptr + (row * stride_y).to(tl.int64)` multiplies in int32; it should be `row.to(tl.int64) * stride_y`. It shows where rows of out reach beyond 2^31 elements.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 8192
RISE = tl.constexpr(8.0)  # exp(8) times the length of a row is far from the end of fp32


@triton.jit
def load_scores(row_ptr, cols, n_cols):
    """Columns `cols` of a row in fp32, -inf behind its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = softmax(x[i, :]); program i owns row i, and brings d to a new scale only after a large rise."""
    row = tl.program_id(axis=0)
    x_row_ptr = x_ptr + row.to(tl.int64) * stride_x
    y_row_ptr = y_ptr + (row * stride_y).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_scores(x_row_ptr, start + tl.arange(0, BLOCK), n_cols)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        factor = tl.where(m_new - m > RISE, tl.exp(m - shift), 1.0)
        d = d * factor + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(load_scores(x_row_ptr, cols, n_cols) - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def width(n_cols: int, widest: int) -> int:
    """Columns of a block for rows of n_cols columns."""
    return min(triton.next_power_of_2(n_cols), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = width(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block > 512 else 1
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = width(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=16 if block > 4096 else 8,
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
