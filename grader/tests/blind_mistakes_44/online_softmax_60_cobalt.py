# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `online_softmax_kernel`, `m = -float("inf")` and `d = 0.0` stand before the loop over the ROWS = 4 rows of a program, so the maximum and the sum of the earlier rows are carried into the next ones; they should be set within the loop, for each row. Rows 1 to 3 of each group of four sum to less than 1, in all cases with more than one row.
"""Softmax with four rows for each program and the online maximum, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

ROWS = 4  # rows of one program
FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def load_block(row_ptr, start, n_cols, other, BLOCK: tl.constexpr):
    """BLOCK columns from `start` on in fp32, `other` behind the end of the row."""
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def store_block(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    """Store values to BLOCK columns from `start` on."""
    cols = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i computes the rows from i * ROWS on, one after the other."""
    first = tl.program_id(axis=0) * ROWS
    last = tl.minimum(first + ROWS, n_rows)
    m = -float("inf")  # maximum of the columns seen so far
    d = 0.0  # sum of exp(x - m) over the columns seen so far
    for index in range(first, last):
        row = tl.cast(index, tl.int64)
        x_row_ptr = x_ptr + row * stride_x
        y_row_ptr = y_ptr + row * stride_y
        for start in range(0, n_cols, BLOCK):
            x = load_block(x_row_ptr, start, n_cols, -float("inf"), BLOCK)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            x = load_block(x_row_ptr, start, n_cols, -float("inf"), BLOCK)
            store_block(y_row_ptr, start, n_cols, tl.exp(x - m) / d, BLOCK)


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
        dy = load_block(dy_row_ptr, start, n_cols, 0.0, BLOCK)
        y = load_block(y_row_ptr, start, n_cols, 0.0, BLOCK)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = load_block(dy_row_ptr, start, n_cols, 0.0, BLOCK)
        y = load_block(y_row_ptr, start, n_cols, 0.0, BLOCK)
        store_block(dx_row_ptr, start, n_cols, y * (dy - s), BLOCK)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, ROWS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
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
