# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) OnlineSoftmax.forward saves x in place of the result, and OnlineSoftmax.backward hands it to softmax_backward as y, so the gradient of softmax is x * (dy - sum of x * dy): wrong in every case of softmax. It should save and use y. (2) softmax_backward_kernel: `row = tl.program_id(0)` stays int32, so row * stride wraps where the offset of a row goes beyond 2^31 elements with a stride that itself fits int32 (rows very far apart); softmax_backward then reads and writes at wrong addresses. It should be `tl.program_id(0).to(tl.int64)`, as in the forward kernel.
"""Softmax over rows, forward and backward, one program for each row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        ok = idx < n_cols
        x = tl.load(x_row_ptr + idx, mask=ok, other=-float("inf")).to(tl.float32)
        m_next = tl.maximum(m, tl.max(x, axis=0))
        # nothing finite so far: any finite shift will do
        shift = tl.where(m_next == -float("inf"), 0.0, m_next)
        d *= tl.exp(m - shift)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = m_next
    inv = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        ok = idx < n_cols
        x = tl.load(x_row_ptr + idx, mask=ok, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + idx, (tl.exp(x - m) * inv).to(y_ptr.dtype.element_ty), mask=ok)


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
    row = tl.program_id(0)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        ok = idx < n_cols
        dy = tl.load(dy_row_ptr + idx, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + idx, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        ok = idx < n_cols
        dy = tl.load(dy_row_ptr + idx, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + idx, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + idx, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 8)
    args = (x, out, n_cols, x.stride(0), out.stride(0))
    online_softmax_kernel[(n_rows,)](*args, BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 32)
    args = (dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](*args, BLOCK=block, num_warps=warps)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), saved)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
