# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward: rows_each = n_rows // programs rounds down, so the last n_rows % programs rows are never written; shows where there are more than 128 rows and their number is no multiple of 128 (149 rows: rows 128 to 148); should be triton.cdiv(n_rows, programs) with a bound row < n_rows in softmax_backward_kernel
"""Softmax with a running maximum. In the backward pass a program works through a run of neighbouring rows."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 4096
MOST_PROGRAMS = 128


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        valid = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=valid, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        ref = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - ref) + tl.sum(tl.exp(x - ref), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        valid = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=valid, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    rows_each,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """Program p owns rows p * rows_each, ..., (p + 1) * rows_each - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * rows_each
    lanes = tl.arange(0, BLOCK)
    for i in range(0, rows_each):
        row = first + i
        dy_row_ptr = dy_ptr + row * stride_dy
        y_row_ptr = y_ptr + row * stride_y
        dx_row_ptr = dx_ptr + row * stride_dx
        partial = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            valid = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=valid, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=valid, other=0.0).to(tl.float32)
            partial += dy * y
        s = tl.sum(partial, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            valid = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=valid, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=valid, other=0.0).to(tl.float32)
            tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=valid)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    programs = min(n_rows, MOST_PROGRAMS)
    rows_each = n_rows // programs
    softmax_backward_kernel[(programs,)](
        dy,
        y,
        out,
        n_cols,
        rows_each,
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
        dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
