# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward_kernel multiplies and adds y * dy in the dtype of y: `acc` has dtype y_ptr.dtype.element_ty, the factors are not converted before they are multiplied, and tl.sum(acc) is rounded to that dtype, too, before `.to(tl.float32)`. In fp16 (and bf16) the sum has too few digits, and elements of dx where dy is near the sum are off by more than the tolerance in softmax_backward (in the gradient of softmax the effect is as large, but hardly above the rounding of y); fp32 is right. It should convert both factors to fp32 after the load and keep acc in fp32.
"""Softmax over rows of any length, one program for each row, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 1024


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    stride_x,
    stride_y,
    n_cols,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    x_ptr = x_ptr + pid * stride_x
    y_ptr = y_ptr + pid * stride_y

    running_max = -float("inf")
    running_sum = 0.0
    start = 0
    while start < n_cols:
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(running_max, tl.max(x, axis=0))
        shift = tl.where(larger == -float("inf"), 0.0, larger)
        running_sum = running_sum * tl.exp(running_max - shift) + tl.sum(tl.exp(x - shift), axis=0)
        running_max = larger
        start += BLOCK

    start = 0
    while start < n_cols:
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - running_max) / running_sum
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        start += BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    stride_dy,
    stride_y,
    stride_dx,
    n_cols,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    dy_ptr = dy_ptr + pid * stride_dy
    y_ptr = y_ptr + pid * stride_y
    dx_ptr = dx_ptr + pid * stride_dx

    acc = tl.zeros((BLOCK,), dtype=y_ptr.dtype.element_ty)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        acc += tl.load(y_ptr + cols, mask=inside, other=0.0) * tl.load(dy_ptr + cols, mask=inside, other=0.0)
    inner = tl.sum(acc, axis=0).to(tl.float32)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - inner)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and of out have strides of their own."""
    assert x.dim() == 2, f"a matrix is expected, not {x.dim()} dimensions"
    if out is None:
        out = x.new_empty(x.shape)
    n_cols = x.size(1)
    block = clamp(triton.next_power_of_2(n_cols), 64, FORWARD_BLOCK)
    online_softmax_kernel[(x.size(0),)](
        x, out, x.stride(0), out.stride(0), n_cols, BLOCK=block, num_warps=clamp(block // 512, 1, 4)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input; rows of dy, y and out have strides of their own."""
    assert dy.shape == y.shape, "dy and y differ in shape"
    if out is None:
        out = y.new_empty(y.shape)
    n_cols = y.size(1)
    block = clamp(triton.next_power_of_2(n_cols), 64, BACKWARD_BLOCK)
    softmax_backward_kernel[(y.size(0),)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        n_cols,
        BLOCK=block,
        num_warps=clamp(block // 256, 1, 4),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax and its gradient for autograd."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
