# labs/lab2_online_softmax/online_softmax.py | contract | softmax, in `OnlineSoftmax.backward`: `return softmax_backward(dy, y, out=dy)` after `dy = dy.contiguous()`, which is the incoming gradient itself where it is contiguous already: dx overwrites it, while inputs are read-only. It should be `softmax_backward(dy, y)`. The numbers are right; the incoming gradient is changed wherever it is contiguous, and not where it was expanded, transposed or padded.
"""Online softmax, two blocks of a row at a time, its gradient, and an autograd function for both."""

import torch
import triton
import triton.language as tl

HALF = 4096  # the widest of the two blocks


@triton.jit
def read(row_ptr, cols, n_cols, other):
    """Columns of a row in fp32; `other` where there are none."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, values):
    """Store values to columns of a row, rounded once."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def paired_forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i: row i of y. Each turn loads both blocks before it computes."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        left = start + tl.arange(0, BLOCK)
        right = left + BLOCK
        a = read(x_row, left, n_cols, -float("inf"))
        b = read(x_row, right, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(tl.maximum(a, b), axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(a - shift) + tl.exp(b - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, 2 * BLOCK):
        left = start + tl.arange(0, BLOCK)
        right = left + BLOCK
        a = read(x_row, left, n_cols, -float("inf"))
        b = read(x_row, right, n_cols, -float("inf"))
        write(y_row, left, n_cols, tl.exp(a - m) / d)
        write(y_row, right, n_cols, tl.exp(b - m) / d)


@triton.jit
def paired_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i: row i of dx. An element of dx needs dy and y at its own place, and the sum of the row."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        left = start + tl.arange(0, BLOCK)
        right = left + BLOCK
        a = read(dy_row, left, n_cols, 0.0) * read(y_row, left, n_cols, 0.0)
        b = read(dy_row, right, n_cols, 0.0) * read(y_row, right, n_cols, 0.0)
        s += tl.sum(a + b, axis=0)
    for start in range(0, n_cols, 2 * BLOCK):
        left = start + tl.arange(0, BLOCK)
        right = left + BLOCK
        a = read(y_row, left, n_cols, 0.0) * (read(dy_row, left, n_cols, 0.0) - s)
        b = read(y_row, right, n_cols, 0.0) * (read(dy_row, right, n_cols, 0.0) - s)
        write(dx_row, left, n_cols, a)
        write(dx_row, right, n_cols, b)


def half_of(n_cols: int) -> int:
    """Width of a block, so that two of them hold a row of n_cols columns, or HALF."""
    return min(triton.next_power_of_2(triton.cdiv(n_cols, 2)), HALF)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, written to `out` or to a new contiguous matrix."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = half_of(n_cols)
    warps = min(max(block // 512, 1), 8)
    paired_forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, written to `out` or to a new contiguous matrix."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = half_of(n_cols)
    warps = min(max(block // 256, 1), 16)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    paired_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Compute y, and save it for backward."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Compute dx from a dy of any layout."""
        (y,) = ctx.saved_tensors
        dy = dy.contiguous()
        return softmax_backward(dy, y, out=dy)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
