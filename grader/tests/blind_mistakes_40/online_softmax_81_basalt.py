# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `load_halves`, `tl.split(tl.reshape(x, (BLOCK // 2, 2)))` gives the columns with even and with odd numbers, not the first and the second half of the block; it should be `tl.split(tl.trans(tl.reshape(x, (2, BLOCK // 2))))` (or `store_half` should store to every second column). Maximum and sum are right, but the results of each block stand at wrong columns: in all cases with more than one column.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def load_halves(row_ptr, start, n_cols, BLOCK: tl.constexpr):
    """The two halves of the block that begins at column `start`, in fp32; -inf past the end of the row."""
    cols = start + tl.arange(0, BLOCK)
    x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    return tl.split(tl.reshape(x, (BLOCK // 2, 2)))


@triton.jit
def store_half(row_ptr, first, n_cols, values, HALF: tl.constexpr):
    """Store HALF values from column `first` on, rounded to the dtype of the row."""
    cols = first + tl.arange(0, HALF)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i. Each block is handled as two independent halves, which gives the scheduler more
    to overlap: two reductions and two chains of exponentials."""
    HALF: tl.constexpr = BLOCK // 2
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        left, right = load_halves(x_row, start, n_cols, BLOCK)
        m_new = tl.maximum(m, tl.maximum(tl.max(left, axis=0), tl.max(right, axis=0)))
        # All columns so far may be -inf: any finite shift will do then.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        added = tl.sum(tl.exp(left - shift), axis=0) + tl.sum(tl.exp(right - shift), axis=0)
        d = d * tl.exp(m - shift) + added
        m = m_new

    for start in range(0, n_cols, BLOCK):
        left, right = load_halves(x_row, start, n_cols, BLOCK)
        store_half(y_row, start, n_cols, tl.exp(left - m) / d, HALF)
        store_half(y_row, start + HALF, n_cols, tl.exp(right - m) / d, HALF)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def block_for(n_cols: int, widest: int) -> int:
    """A power of two that covers n_cols if it may; a block has two halves, so never below 64."""
    return max(64, min(triton.next_power_of_2(n_cols), widest))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = block_for(n_cols, FORWARD_BLOCK)
    warps = 8 if block > 4096 else 4
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = block_for(n_cols, BACKWARD_BLOCK)
    warps = 16 if block > 4096 else 8 if block > 2048 else 4
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
