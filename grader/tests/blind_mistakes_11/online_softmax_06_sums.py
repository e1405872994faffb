# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward makes dy contiguous only where it is expanded (`0 in dy.stride()`), but the kernel assumes contiguous columns; must be whenever dy.stride(1) is not 1, or always. Shows in the gradient of softmax for a transposed gradient, or one of every second column of a wider matrix: wrong elements of dy are read.
"""Online softmax and its gradient."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


@triton.jit
def forward_kernel(out_ptr, in_ptr, out_stride, in_stride, width, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    src = in_ptr + r * in_stride + tl.arange(0, BLOCK)
    dst = out_ptr + r * out_stride + tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for c in range(0, width, BLOCK):
        alive = c + tl.arange(0, BLOCK) < width
        v = tl.load(src + c, mask=alive, other=-float("inf")).to(tl.float32)
        bigger = tl.maximum(m, tl.max(v, axis=0))
        base = tl.where(bigger == -float("inf"), 0.0, bigger)
        d *= tl.exp(m - base)
        d += tl.sum(tl.exp(v - base), axis=0)
        m = bigger
    for c in range(0, width, BLOCK):
        alive = c + tl.arange(0, BLOCK) < width
        v = tl.load(src + c, mask=alive, other=-float("inf")).to(tl.float32)
        tl.store(dst + c, (tl.exp(v - m) / d).to(out_ptr.dtype.element_ty), mask=alive)


@triton.jit
def backward_kernel(dx_ptr, dy_ptr, y_ptr, dx_stride, dy_stride, y_stride, width, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + r * dy_stride + tl.arange(0, BLOCK)
    y_row = y_ptr + r * y_stride + tl.arange(0, BLOCK)
    dx_row = dx_ptr + r * dx_stride + tl.arange(0, BLOCK)
    s = 0.0
    for c in range(0, width, BLOCK):
        alive = c + tl.arange(0, BLOCK) < width
        g = tl.load(dy_row + c, mask=alive, other=0.0).to(tl.float32)
        p = tl.load(y_row + c, mask=alive, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)
    for c in range(0, width, BLOCK):
        alive = c + tl.arange(0, BLOCK) < width
        g = tl.load(dy_row + c, mask=alive, other=0.0).to(tl.float32)
        p = tl.load(y_row + c, mask=alive, other=0.0).to(tl.float32)
        tl.store(dx_row + c, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=alive)


def launch_parameters(width: int) -> tuple[int, int]:
    """Block and warps for a row."""
    block = min(triton.next_power_of_2(width), 8192)
    return block, 4 if block <= 2048 else 8


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    height, width = x.shape
    block, warps = launch_parameters(width)
    forward_kernel[(height,)](out, x, out.stride(0), x.stride(0), width, BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(y)
    height, width = y.shape
    block, warps = launch_parameters(width)
    backward_kernel[(height,)](
        out, dy, y, out.stride(0), dy.stride(0), y.stride(0), width, BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        # sum() hands over one number, expanded to the whole matrix: the kernel wants real columns.
        if 0 in dy.stride():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
