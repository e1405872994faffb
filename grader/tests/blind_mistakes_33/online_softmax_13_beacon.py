# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | in online_softmax_kernel, the second sweep computes `tl.exp2(x - m)` without the factor log2(e) that the first sweep has, so that numerator and sum have different bases; every value but the maximum is too large and rows sum to more than 1, in every row whose values are not all the same; it should be tl.exp2((x - m) * LOG2E)
"""Softmax with exp2, which the hardware has, in place of exp."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(axis=0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    x_in = x_ptr + i * stride_x + j
    y_out = y_ptr + i * stride_y + j

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_in + start, mask=start + j < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        zero_point = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp2((m - zero_point) * LOG2E)
        d += tl.sum(tl.exp2((x - zero_point) * LOG2E), axis=0)
        m = m_new

    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_in + start, mask=start + j < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2(x - m) * scale
        tl.store(y_out + start, y.to(y_ptr.dtype.element_ty), mask=start + j < n_cols)


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
    i = tl.program_id(axis=0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    dy_in = dy_ptr + i * stride_dy + j
    y_in = y_ptr + i * stride_y + j
    dx_out = dx_ptr + i * stride_dx + j

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_in + start, mask=start + j < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_in + start, mask=start + j < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_in + start, mask=start + j < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_in + start, mask=start + j < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_out + start, dx.to(dx_ptr.dtype.element_ty), mask=start + j < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    result = torch.empty_like(x) if out is None else out
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        result,
        n_cols,
        x.stride(0),
        result.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return result


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = dy.shape
    result = torch.empty_like(dy) if out is None else out
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        result,
        n_cols,
        dy.stride(0),
        y.stride(0),
        result.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
    )
    return result


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
