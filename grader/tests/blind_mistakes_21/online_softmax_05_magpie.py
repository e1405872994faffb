# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_forward passes x.stride(0) as stride_y, so out is written at wrong places where its row stride differs from that of x; it should be out.stride(0). (2) In softmax_backward_kernel `s = tl.sum(...)` overwrites the sum in each block, so for rows longer than BACKWARD_BLOCK (1024) s is that of the last block only; it should be s += tl.sum(...).
"""Softmax over rows; the columns of a block move on by BLOCK in each turn."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 1024


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    x_base = x_ptr + r * stride_x
    y_base = y_ptr + r * stride_y

    # the first block starts the recurrence, the others continue it
    c = tl.arange(0, BLOCK)
    x = tl.load(x_base + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    d = tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), axis=0)
    c += BLOCK
    for _ in range(BLOCK, n_cols, BLOCK):
        x = tl.load(x_base + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
        bigger = tl.maximum(m, tl.max(x, axis=0))
        ref = tl.where(bigger == -float("inf"), 0.0, bigger)
        d = d * tl.exp(m - ref) + tl.sum(tl.exp(x - ref), axis=0)
        m = bigger
        c += BLOCK

    c = tl.arange(0, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_base + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_base + c, y.to(y_ptr.dtype.element_ty), mask=c < n_cols)
        c += BLOCK


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    dy_base = dy_ptr + r * stride_dy
    y_base = y_ptr + r * stride_y
    dx_base = dx_ptr + r * stride_dx

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_base + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_base + c, mask=c < n_cols, other=0.0).to(tl.float32)
        s = tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_base + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_base + c, mask=c < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_base + c, dx.to(dx_ptr.dtype.element_ty), mask=c < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    row_stride = x.stride(0)
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, row_stride, row_stride, BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = y.shape
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
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
