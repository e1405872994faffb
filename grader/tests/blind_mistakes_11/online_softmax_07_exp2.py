# labs/lab2_online_softmax/online_softmax.py | corner | x is multiplied by log2(e) before the maximum is subtracted (in load_base2; then exp2(x2 - m2)), so the rounding of the product is as large as x; must be exp2((x - m) * log2(e)). Shows in rows with large values whose differences are small, such as 10000 + noise: the weights of y are off by about x * 1e-7 in relative terms, far above the tolerance in fp32 and, for large values, in fp16. Small values are right.
"""Online softmax to the base 2: exp(x - m) = exp2(x * log2(e) - m * log2(e))."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def load_base2(row_ptr, cols, n_cols):
    """A block of the row times log2(e), so that every exponential after it is one instruction."""
    x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"))
    return x.to(tl.float32) * 1.4426950408889634


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m2 = -float("inf")  # the maximum, times log2(e)
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x2 = load_base2(x_row_ptr, start + tl.arange(0, BLOCK), n_cols)
        m2_new = tl.maximum(m2, tl.max(x2, axis=0))
        shift = tl.where(m2_new == -float("inf"), 0.0, m2_new)
        d = d * tl.exp2(m2 - shift) + tl.sum(tl.exp2(x2 - shift), axis=0)
        m2 = m2_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp2(load_base2(x_row_ptr, cols, n_cols) - m2) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    if block <= 1024:
        warps = 1
    elif block <= 8192:
        warps = 4
    else:
        warps = 8
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = 4 if block <= 2048 else 16
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
