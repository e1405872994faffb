# labs/lab2_online_softmax/online_softmax.py | two mistakes | both in the first loop of online_softmax_kernel: (1) the load has other=0.0, so each lane past the end adds exp(0 - m) to d and may be the maximum of a negative row, whenever n_cols is no multiple of BLOCK; should be other=-inf; (2) `m = m_new` stands before the line of d, so the factor tl.exp(m - shift) is 1 and d is not rescaled when a later block raises the maximum (rows longer than 2048); should come after that line
"""Online softmax over rows of any length, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        x = tl.load(x_row_ptr + start + offs, mask=mask, other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # a block of -inf alone: any finite shift will do
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        m = m_new
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        x = tl.load(x_row_ptr + start + offs, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + start + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    offs = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        dy = tl.load(dy_row_ptr + start + offs, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + offs, mask=mask, other=0.0).to(tl.float32)
        s = s + tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        dy = tl.load(dy_row_ptr + start + offs, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + offs, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + start + offs, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    BLOCK = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=8
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
