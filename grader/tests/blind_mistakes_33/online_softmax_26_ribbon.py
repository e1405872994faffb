# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_backward_kernel multiplies y and dy and adds the products in the dtype of the inputs (acc is of dy_ptr.dtype.element_ty), so in fp16 (and bf16) the sum s is rounded to about three digits and dx is off by several times the tolerance; right is to convert both to fp32 before multiplying and to keep acc in fp32. (2) OnlineSoftmax.backward makes dy contiguous only if its column stride is 0, so a transposed dy or one with every second column is read as if its columns were contiguous, and the gradient of softmax() is wrong there, also in fp32; right is dy.contiguous() in every case.
"""Softmax over long rows, forward and backward."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One program, one row: a sweep for maximum and sum, a sweep for the result."""
    i = tl.program_id(axis=0).to(tl.int64)
    src = x_ptr + i * stride_x
    dst = y_ptr + i * stride_y
    j = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        ok = start + j < n_cols
        v = tl.load(src + start + j, mask=ok, other=-float("inf"), eviction_policy="evict_last")
        v = v.to(tl.float32)
        best = tl.maximum(m, tl.max(v, axis=0))
        base = tl.where(best > -float("inf"), best, 0.0)
        d = tl.exp(m - base) * d + tl.sum(tl.exp(v - base), axis=0)
        m = best

    for start in range(0, n_cols, BLOCK):
        ok = start + j < n_cols
        v = tl.load(src + start + j, mask=ok, other=-float("inf"), eviction_policy="evict_first")
        e = tl.exp(v.to(tl.float32) - m)
        tl.store(dst + start + j, (e / d).to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """One program, one row: a sweep for the sum, a sweep for the gradient."""
    i = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + i * stride_dy
    y_row = y_ptr + i * stride_y
    dx_row = dx_ptr + i * stride_dx
    j = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), dtype=dy_ptr.dtype.element_ty)
    for start in range(0, n_cols, BLOCK):
        ok = start + j < n_cols
        g = tl.load(dy_row + start + j, mask=ok, other=0.0, eviction_policy="evict_last")
        p = tl.load(y_row + start + j, mask=ok, other=0.0, eviction_policy="evict_last")
        acc += p * g
    s = tl.sum(acc, axis=0).to(tl.float32)

    for start in range(0, n_cols, BLOCK):
        ok = start + j < n_cols
        g = tl.load(dy_row + start + j, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
        p = tl.load(y_row + start + j, mask=ok, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + start + j, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    rows, cols = x.size(0), x.size(1)
    width = min(FORWARD_BLOCK, triton.next_power_of_2(cols))
    warps = clamp(width // 1024, 2, 8)
    online_softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=width, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    rows, cols = y.size(0), y.size(1)
    width = min(BACKWARD_BLOCK, triton.next_power_of_2(cols))
    softmax_backward_kernel[(rows,)](
        dy, y, out, cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=width, num_warps=clamp(width // 512, 4, 32),
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two passes, tied together."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.stride(-1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
