# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward_kernel, the last loop `for back in range(2, n_blocks)`: it goes from the last but one block down to block 1 and never reaches block 0, so the first BLOCK = 4096 columns of dx are not written in rows of more than 4096 columns; rows of one block are right. It should be range(2, n_blocks + 1). Shows in softmax_backward and in the gradient of softmax(), in all dtypes.
"""Softmax with the online maximum, and its gradient.

Only the last block of a row can be short, so only that one has masks. It also stays in registers from the first
sweep to the second, which starts at the end of the row, where the cache is warm.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def fold(m, d, x):
    """The maximum and the sum with the numbers of one more block."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = tl.cdiv(n_cols, BLOCK) - 1  # blocks in front of the last one
    m = -float("inf")
    d = 0.0
    for b in range(0, whole):
        x = tl.load(x_row_ptr + b * BLOCK + lanes).to(tl.float32)
        m, d = fold(m, d, x)

    last = whole * BLOCK + lanes
    inside = last < n_cols
    x_last = tl.load(x_row_ptr + last, mask=inside, other=-float("inf")).to(tl.float32)
    m, d = fold(m, d, x_last)
    tl.store(y_row_ptr + last, (tl.exp(x_last - m) / d).to(y_ptr.dtype.element_ty), mask=inside)

    for b in range(0, whole):
        x = tl.load(x_row_ptr + b * BLOCK + lanes).to(tl.float32)
        tl.store(y_row_ptr + b * BLOCK + lanes, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty))


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    n_blocks = tl.cdiv(n_cols, BLOCK)
    s = 0.0
    for b in range(0, n_blocks - 1):
        dy = tl.load(dy_row_ptr + b * BLOCK + lanes).to(tl.float32)
        y = tl.load(y_row_ptr + b * BLOCK + lanes).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    last = (n_blocks - 1) * BLOCK + lanes
    inside = last < n_cols
    dy_last = tl.load(dy_row_ptr + last, mask=inside, other=0.0).to(tl.float32)
    y_last = tl.load(y_row_ptr + last, mask=inside, other=0.0).to(tl.float32)
    s += tl.sum(dy_last * y_last, axis=0)
    tl.store(dx_row_ptr + last, (y_last * (dy_last - s)).to(dx_ptr.dtype.element_ty), mask=inside)

    # block number n_blocks - 1 is done: go on with the one in front of it
    for back in range(2, n_blocks):
        cols = (n_blocks - back) * BLOCK + lanes
        dy = tl.load(dy_row_ptr + cols).to(tl.float32)
        y = tl.load(y_row_ptr + cols).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty))


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
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
    return OnlineSoftmax.apply(x)
