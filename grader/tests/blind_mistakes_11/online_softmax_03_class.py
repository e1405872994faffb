# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.forward saves its input (`ctx.save_for_backward(x)`), and backward gives it to softmax_backward as y; must save y, the forward result. The gradient of softmax is wrong in every call; softmax_forward and softmax_backward, called directly, are right.
"""Online softmax: two sweeps forward, two sweeps backward."""

import torch
import triton
import triton.language as tl
from triton import cdiv

WIDEST = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, n_blocks, stride_x, stride_y, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    x_ptr += pid * stride_x
    y_ptr += pid * stride_y
    top = -float("inf")
    total = 0.0
    for i in range(n_blocks):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        val = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(val, 0))
        if higher > -float("inf"):
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(val - higher), 0)
        top = higher
    for i in range(n_blocks):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        val = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        prob = tl.exp(val - top) / total
        tl.store(y_ptr + offs, prob.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, n_blocks, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    dy_ptr += pid * stride_dy
    y_ptr += pid * stride_y
    dx_ptr += pid * stride_dx
    # One partial sum per lane, one reduction at the end.
    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(n_blocks):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(dy_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        partial += g * p
    s = tl.sum(partial, 0)
    for i in range(n_blocks):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(dy_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + offs, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    warps = 8 if block == WIDEST else 4
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, cdiv(n_cols, block), x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    warps = 16 if block >= 8192 else 8
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, cdiv(n_cols, block), *strides, BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, grad):
        (saved,) = ctx.saved_tensors
        return softmax_backward(grad.contiguous(), saved)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
