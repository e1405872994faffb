# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel, second loop, `y * (g - s) * ln2`: the gradient is multiplied by ln 2, as if the forward pass had been a softmax to the base 2 because it calls exp2. The forward pass multiplies by log2(e) first, so no factor belongs there: it should be `y * (g - s)`. softmax_backward and the gradient of softmax() are too small by the factor 0.693 everywhere (but for one column, where both are 0); the forward pass is right.
"""Softmax over rows with base-2 exponentials, which a GPU has in hardware, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    log2e = 1.4426950408889634
    pid = tl.program_id(axis=0).to(tl.int64)
    src = x_ptr + pid * stride_x + tl.arange(0, BLOCK)
    dst = y_ptr + pid * stride_y + tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for done in range(0, n_cols, BLOCK):
        valid = tl.arange(0, BLOCK) < n_cols - done
        x = tl.load(src + done, mask=valid, other=-float("inf")).to(tl.float32)
        peak = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(peak > -float("inf"), peak, 0.0)
        d *= tl.exp2((m - base) * log2e)
        d += tl.sum(tl.exp2((x - base) * log2e), axis=0)
        m = peak
    scale = 1.0 / d
    for done in range(0, n_cols, BLOCK):
        valid = tl.arange(0, BLOCK) < n_cols - done
        x = tl.load(src + done, mask=valid, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * log2e) * scale
        tl.store(dst + done, y.to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    ln2 = 0.6931471805599453
    pid = tl.program_id(axis=0).to(tl.int64)
    g_src = dy_ptr + pid * stride_dy + tl.arange(0, BLOCK)
    y_src = y_ptr + pid * stride_y + tl.arange(0, BLOCK)
    dst = dx_ptr + pid * stride_dx + tl.arange(0, BLOCK)
    s = 0.0
    for done in range(0, n_cols, BLOCK):
        valid = tl.arange(0, BLOCK) < n_cols - done
        g = tl.load(g_src + done, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_src + done, mask=valid, other=0.0).to(tl.float32)
        s += tl.sum(g * y, axis=0)
    for done in range(0, n_cols, BLOCK):
        valid = tl.arange(0, BLOCK) < n_cols - done
        g = tl.load(g_src + done, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_src + done, mask=valid, other=0.0).to(tl.float32)
        dx = y * (g - s) * ln2
        tl.store(dst + done, dx.to(dx_ptr.dtype.element_ty), mask=valid)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
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
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
