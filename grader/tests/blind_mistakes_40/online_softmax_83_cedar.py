# labs/lab2_online_softmax/online_softmax.py | error | In `softmax_backward` (host) `block = min(triton.cdiv(n_cols, LANES) * LANES, BACKWARD_BLOCK)` rounds up to a multiple of 128, and `tl.arange(0, BLOCK)` needs a power of two: it should be `triton.next_power_of_2(n_cols)`. Raises (arange's range must be a power of 2) for n_cols up to 8192 where cdiv(n_cols, 128) is no power of two, such as 257, 1536, 2600, 3001; 1, 127, 129, 1001, 4096, 40000 are right.
"""Softmax of rows with a running maximum, and its gradient, also as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192
LANES = 128  # columns that four warps take at a time


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = softmax of x[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        x = tl.load(x_row_ptr + start + offs, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        x = tl.load(x_row_ptr + start + offs, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row_ptr + start + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def products(dy_row_ptr, y_row_ptr, cols, n_cols):
    """y and y * dy of some columns of a row in fp32, 0 past the end of it."""
    dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return y, y * dy


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
    ONE_BLOCK: tl.constexpr,  # whether a row fits into one block
):
    """dx[i, :] = y * dy - y * s with s = sum of y * dy; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    offs = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        dy = tl.load(dy_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            y, p = products(dy_row_ptr, y_row_ptr, start + offs, n_cols)
            s += tl.sum(p, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, written to `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block > 8192 else 4 if block > 2048 else 2
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, written to `out` where one is given."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    # No more lanes than a row has columns, in whole groups.
    block = min(triton.cdiv(n_cols, LANES) * LANES, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=4 if block <= 2048 else 16,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x, which is kept."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy in any layout."""
        y = ctx.saved_tensors[0]
        return softmax_backward(dy if dy.is_contiguous() else dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
