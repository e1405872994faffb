# labs/lab2_online_softmax/online_softmax.py | error | softmax_forward ends with out.copy_(dense) on the host, which the language page does not list (POLICY), it must store through the strides of out in the kernel; numbers would be right
"""Online softmax. The forward kernel writes a dense matrix, which makes the stores nicely aligned."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def load_row(ptr, start, n_cols, pad, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    return tl.load(ptr + cols, mask=cols < n_cols, other=pad).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, BLOCK: tl.constexpr):
    """x has rows of any distance, the rows of y touch."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * n_cols
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_row(x_row_ptr, start, n_cols, -float("inf"), BLOCK)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = load_row(x_row_ptr, start, n_cols, -float("inf"), BLOCK)
        y = tl.exp(x - m) / d
        cols = start + tl.arange(0, BLOCK)
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_row(dy_row_ptr, start, n_cols, 0.0, BLOCK)
        y = load_row(y_row_ptr, start, n_cols, 0.0, BLOCK)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = load_row(dy_row_ptr, start, n_cols, 0.0, BLOCK)
        y = load_row(y_row_ptr, start, n_cols, 0.0, BLOCK)
        cols = start + tl.arange(0, BLOCK)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    dense = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, dense, n_cols, x.stride(0), BLOCK=block, num_warps=4)
    if out is None:
        return dense
    out.copy_(dense)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
