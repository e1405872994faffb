# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel computes the gradient of log-softmax: it sums dy alone and stores `dy - y * total`, where softmax needs the sum of y * dy and `y * (dy - s)`. softmax_backward and dx of softmax() are wrong in every case but one column (the rows of dx still sum to 0); the forward pass is right
"""Row softmax with exp2, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """One row: a sweep for the maximum and the sum, and a sweep for the result."""
    LOG2_E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(axis=0).to(tl.int64)
    source = x_ptr + row * stride_x
    target = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    peak = -float("inf")
    total = 0.0
    for first in range(0, n_cols, BLOCK):
        at = first + lanes
        x = tl.load(source + at, mask=at < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(x, axis=0))
        origin = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        total *= tl.exp2((peak - origin) * LOG2_E)
        total += tl.sum(tl.exp2((x - origin) * LOG2_E), axis=0)
        peak = new_peak

    for first in range(0, n_cols, BLOCK):
        at = first + lanes
        x = tl.load(source + at, mask=at < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - peak) * LOG2_E) / total
        tl.store(target + at, y.to(y_ptr.dtype.element_ty), mask=at < n_cols, eviction_policy="evict_first")


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
    """One row: a sweep for the sum, and a sweep for the gradient."""
    row = tl.program_id(axis=0).to(tl.int64)
    incoming = dy_ptr + row * stride_dy
    result = y_ptr + row * stride_y
    target = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    total = 0.0
    for first in range(0, n_cols, BLOCK):
        at = first + lanes
        dy = tl.load(incoming + at, mask=at < n_cols, other=0.0, eviction_policy="evict_last")
        total += tl.sum(dy.to(tl.float32), axis=0)

    for first in range(0, n_cols, BLOCK):
        at = first + lanes
        dy = tl.load(incoming + at, mask=at < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(result + at, mask=at < n_cols, other=0.0, eviction_policy="evict_first")
        dx = dy.to(tl.float32) - y.to(tl.float32) * total
        tl.store(target + at, dx.to(dx_ptr.dtype.element_ty), mask=at < n_cols, eviction_policy="evict_first")


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, cols = x.shape
    block = min(triton.next_power_of_2(cols), FORWARD_BLOCK)
    warps = 8 if block == 16384 else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(rows,)](
        x,
        out,
        cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    rows, cols = dy.shape
    block = min(triton.next_power_of_2(cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(rows,)](
        dy,
        y,
        out,
        cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Ties softmax_forward and softmax_backward together."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        result = ctx.saved_tensors[0]
        return softmax_backward(grad.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
