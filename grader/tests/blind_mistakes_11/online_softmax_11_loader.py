# labs/lab2_online_softmax/online_softmax.py | error | the number of warps is not always a power of two (`clamp(triton.cdiv(n_cols, 1024), 1, 4)` and `clamp(triton.cdiv(n_cols, 512), 4, 32)`); must be a power of two, such as from the block. Shows on a GPU only, also when compiled for one: forward raises for 2049 to 3072 columns (3 warps), backward for most n_cols from 2049 on (5, 6, 7, 9, ... warps). The interpreter ignores num_warps.
"""Online softmax with as many warps as the columns of a row need."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def row_block(ptr, cols, n_cols, other):
    return tl.load(ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr = x_ptr + row * stride_x
    y_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = row_block(x_ptr, start + tl.arange(0, BLOCK), n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(row_block(x_ptr, cols, n_cols, -float("inf")) - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr = dy_ptr + row * stride_dy
    y_ptr = y_ptr + row * stride_y
    dx_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s += tl.sum(row_block(dy_ptr, cols, n_cols, 0.0) * row_block(y_ptr, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = row_block(y_ptr, cols, n_cols, 0.0) * (row_block(dy_ptr, cols, n_cols, 0.0) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if n_cols > 8192 else clamp(triton.cdiv(n_cols, 1024), 1, 4)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(triton.cdiv(n_cols, 512), 4, 32)
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
