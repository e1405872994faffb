# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel, first loop: lanes past the end load `other=0.0`, so each adds exp(0 - m) to d, and in rows below 0 the zeros become the maximum; shows wherever n_cols is no multiple of BLOCK (rows sum to less than 1, rows far below 0 give 0); it should be -inf. (2) online_softmax_kernel and softmax_forward: one `stride`, that of x, serves both tensors (`offset = row * stride` in the store); shows where out has another row stride than x, also where x is padded and out is newly made: rows land in the wrong places, between the rows or out of bounds. The store needs out.stride(0).
"""Softmax over rows with the online maximum, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride,
    BLOCK: tl.constexpr,
):
    """Program i reads row i twice: for its maximum and sum, and for its result."""
    row = tl.program_id(axis=0).to(tl.int64)
    offset = row * stride
    lowest = -float("inf")

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        values = tl.load(x_ptr + offset + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(values, axis=0))
        # Nothing but -inf so far: any finite shift will do.
        shift = tl.where(m_new == lowest, 0.0, m_new)
        d = d * tl.exp(m - shift)
        d += tl.sum(tl.exp(values - shift), axis=0)
        m = m_new

    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        values = tl.load(x_ptr + offset + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(values - m) * scale
        tl.store(y_ptr + offset + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    """Program i computes row i of dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx

    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - total)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def block_and_warps(n_cols: int, widest: int, per_warp: int):
    """Width of a block, and a count of warps that suits it."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, clamp(block // per_warp, 1, 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, FORWARD_BLOCK, 1024)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols, BACKWARD_BLOCK, 512)
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
