# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `online_softmax_kernel` the pairs for `tl.reduce` are `(x, tl.exp(x))`; a single column has the sum exp(x - x) = 1 relative to its own maximum, so it should be `(x, tl.full((BLOCK,), 1.0, tl.float32))`. d becomes the sum of exp(x_j) * exp(x_j - m), so every row is scaled wrongly in all cases (0 or inf/NaN where values are far from 0).
"""Softmax over rows of any length: pairs of maximum and sum are merged by tl.reduce; gradient and autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096  # a pair for each column is alive
BACKWARD_BLOCK = 8192


@triton.jit
def merge(m_a, d_a, m_b, d_b):
    """Maximum and sum of two sets of columns together; a sum counts multiples of exp(its maximum)."""
    m = tl.maximum(m_a, m_b)
    # Of two sets of -inf alone any finite shift is right: both terms are then 0.
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)


@triton.jit
def load_row(row_ptr, cols, n_cols, other):
    """Columns of a row in fp32, and `other` behind its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_row(x_row, start + lanes, n_cols, -float("inf"))
        # Each column starts as a set of its own, with itself as the maximum.
        block_m, block_d = tl.reduce((x, tl.exp(x)), axis=0, combine_fn=merge)
        m, d = merge(m, d, block_m, block_d)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = load_row(x_row, cols, n_cols, -float("inf"))
        y = tl.exp(x - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
        dy = load_row(dy_row, start + lanes, n_cols, 0.0)
        y = load_row(y_row, start + lanes, n_cols, 0.0)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = load_row(dy_row, cols, n_cols, 0.0)
        y = load_row(y_row, cols, n_cols, 0.0)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = min(max(block // 512, 1), 8)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 16)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
        """dx from dy, which may have any layout."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
