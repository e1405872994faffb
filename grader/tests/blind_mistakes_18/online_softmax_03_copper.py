# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.backward, softmax_backward(probs, grad.contiguous()): the two arguments are exchanged, so the gradient is dy * (y - s) in place of y * (dy - s). It should be softmax_backward(grad.contiguous(), probs).
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

from typing import Optional

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def load_f32(ptr, offs, n_cols, fill: tl.constexpr):
    return tl.load(ptr + offs, mask=offs < n_cols, other=fill).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    x_ptr += pid * stride_x
    y_ptr += pid * stride_y
    lanes = tl.arange(0, BLOCK)

    running_max = -float("inf")
    running_sum = 0.0
    for first in range(0, n_cols, BLOCK):
        scores = load_f32(x_ptr, first + lanes, n_cols, -float("inf"))
        new_max = tl.maximum(running_max, tl.max(scores, 0))
        safe_max = tl.where(new_max == -float("inf"), 0.0, new_max)
        correction = tl.exp(running_max - safe_max)
        running_sum = running_sum * correction + tl.sum(tl.exp(scores - safe_max), 0)
        running_max = new_max

    scale = 1.0 / running_sum
    for first in range(0, n_cols, BLOCK):
        offs = first + lanes
        scores = load_f32(x_ptr, offs, n_cols, -float("inf"))
        probs = tl.exp(scores - running_max) * scale
        tl.store(y_ptr + offs, probs.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    dy_ptr += pid * stride_dy
    y_ptr += pid * stride_y
    dx_ptr += pid * stride_dx
    lanes = tl.arange(0, BLOCK)

    dot = 0.0
    for first in range(0, n_cols, BLOCK):
        grad = load_f32(dy_ptr, first + lanes, n_cols, 0.0)
        probs = load_f32(y_ptr, first + lanes, n_cols, 0.0)
        dot += tl.sum(grad * probs, 0)

    for first in range(0, n_cols, BLOCK):
        offs = first + lanes
        grad = load_f32(dy_ptr, offs, n_cols, 0.0)
        probs = load_f32(y_ptr, offs, n_cols, 0.0)
        result = probs * (grad - dot)
        tl.store(dx_ptr + offs, result.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Softmax of every row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.size(0), x.size(1)
    BLOCK = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    num_warps = 4 if BLOCK >= 2048 else 2
    grid = (n_rows,)
    online_softmax_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=num_warps)
    return out


def softmax_backward(
    dy: torch.Tensor, y: torch.Tensor, *, out: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """Gradient for the input of softmax, from the incoming gradient and the forward result."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.size(0), y.size(1)
    BLOCK = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    num_warps = 8 if BLOCK >= 2048 else 4
    grid = (n_rows,)
    softmax_backward_kernel[grid](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=num_warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        probs = softmax_forward(x)
        ctx.save_for_backward(probs)
        return probs

    @staticmethod
    def backward(ctx, grad):
        # grad may be expanded or transposed, the kernel wants contiguous columns
        (probs,) = ctx.saved_tensors
        return softmax_backward(probs, grad.contiguous())


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
