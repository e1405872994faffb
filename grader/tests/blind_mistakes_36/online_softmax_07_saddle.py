# labs/lab2_online_softmax/online_softmax.py | corner | In online_softmax_kernel the columns behind the last whole block are folded in by themselves, with d += tl.sum(tl.exp(x - m_new), axis=0): the sum of the whole blocks is not brought to the new maximum. It shows only where the number of columns is no multiple of BLOCK (no power of two, up to 8192; above, no multiple of 8192) and the maximum of the row lies in this tail, and then the row sums to less than 1. It should be d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0).
"""Softmax whose whole blocks need no mask: only the rest of a row has one."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i, and BLOCK is at most n_cols."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lanes

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lanes).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # All -inf up to here: 0 serves as well as any other shift.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    if whole < n_cols:
        x = tl.load(x_row_ptr + rest, mask=rest < n_cols, other=-float("inf")).to(tl.float32)
        # The end of the row: some column has had a finite value by now.
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d += tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new

    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lanes).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + start + lanes, y.to(y_ptr.dtype.element_ty))
    if whole < n_cols:
        x = tl.load(x_row_ptr + rest, mask=rest < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + rest, y.to(y_ptr.dtype.element_ty), mask=rest < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lanes

    s = 0.0
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row_ptr + start + lanes).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    if whole < n_cols:
        dy = tl.load(dy_row_ptr + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row_ptr + start + lanes).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes).to(tl.float32)
        tl.store(dx_row_ptr + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty))
    if whole < n_cols:
        dy = tl.load(dy_row_ptr + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + rest, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=rest < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def block_below(n_cols: int) -> int:
    """The largest power of two that is not above n_cols, and at most WIDEST."""
    return min(2 ** (n_cols.bit_length() - 1), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, to `out` or to a new matrix."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = block_below(n_cols)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, to `out` or to a new matrix."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = block_below(n_cols)
    strides = dy.stride(0), y.stride(0), out.stride(0)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=clamp(block // 512, 1, 16)
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
