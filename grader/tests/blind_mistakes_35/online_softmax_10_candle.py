# labs/lab2_online_softmax/online_softmax.py | corner | In online_softmax_kernel the partial block at the end of a row adds to d without rescaling it: d += tl.sum(tl.exp(x - m_new)). Where the row is longer than one block (2048 columns), is no multiple of it, and its maximum lies in the last, partial block, the sum of the earlier blocks stays relative to their lower maximum, and the row sums to less than 1. Right for short rows, for whole blocks, and where the maximum stands earlier or the earlier blocks are all -inf. Should be d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new)).
"""Online softmax: whole blocks are read without a mask, the rest of the row with one."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 2048


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lanes
    in_row = rest < n_cols

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row + start + lanes).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    # The end of the row, which may be empty; from here on the maximum is finite.
    x = tl.load(x_row + rest, mask=in_row, other=-float("inf")).to(tl.float32)
    m_new = tl.maximum(m, tl.max(x, axis=0))
    d += tl.sum(tl.exp(x - m_new), axis=0)
    m = m_new

    # It is still in registers, so it goes first.
    y = tl.exp(x - m) / d
    tl.store(y_row + rest, y.to(y_ptr.dtype.element_ty), mask=in_row)
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row + start + lanes).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + lanes
    in_row = rest < n_cols

    dy_rest = tl.load(dy_row + rest, mask=in_row, other=0.0).to(tl.float32)
    y_rest = tl.load(y_row + rest, mask=in_row, other=0.0).to(tl.float32)
    s = tl.sum(dy_rest * y_rest, axis=0)
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    tl.store(dx_row + rest, (y_rest * (dy_rest - s)).to(dx_ptr.dtype.element_ty), mask=in_row)
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        tl.store(dx_row + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
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
