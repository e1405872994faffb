# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `online_softmax_kernel`, first sweep, `for start in range(0, n_cols, BLOCK):` steps by one block although each turn takes two; it should be `2 * BLOCK`. Shows in rows of more than 2048 columns: all blocks but the first are counted twice in d. (2) In the same kernel `y_row = y_ptr + row * stride_y` multiplies in int32; it should be `row.to(tl.int64) * stride_y`. Shows where the rows of `out` reach beyond 2^31 elements, also for short rows.
"""Softmax over rows of any length, two blocks a turn, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048  # half of what a turn of the forward kernel takes
BACKWARD_BLOCK = 4096


@triton.jit
def load_block(row_ptr, cols, n_cols, other):
    """Columns of one row in fp32; `other` where there are none."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def store_block(row_ptr, cols, n_cols, values):
    """Store columns of one row, rounded to its dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i; a turn takes the block at `left` and the one behind it, at `right`."""
    row = tl.program_id(axis=0)
    x_row = x_ptr + row.to(tl.int64) * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        left = load_block(x_row, start + lanes, n_cols, -float("inf"))
        right = load_block(x_row, start + BLOCK + lanes, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(tl.maximum(left, right), axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(left - shift) + tl.exp(right - shift), axis=0)
        m = m_new

    for start in range(0, n_cols, 2 * BLOCK):
        left = load_block(x_row, start + lanes, n_cols, -float("inf"))
        right = load_block(x_row, start + BLOCK + lanes, n_cols, -float("inf"))
        store_block(y_row, start + lanes, n_cols, tl.exp(left - m) / d)
        store_block(y_row, start + BLOCK + lanes, n_cols, tl.exp(right - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_block(dy_row, start + lanes, n_cols, 0.0)
        y = load_block(y_row, start + lanes, n_cols, 0.0)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        dy = load_block(dy_row, start + lanes, n_cols, 0.0)
        y = load_block(y_row, start + lanes, n_cols, 0.0)
        store_block(dx_row, start + lanes, n_cols, y * (dy - s))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous.

    Rows of x and of `out` may be any number of elements apart.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
