# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward makes dy contiguous only `if dy.stride(1) == 0`, that is for an expanded gradient. A transposed gradient, or one with every second column of a wider matrix, has a column stride that is neither 0 nor 1; it goes to the kernel as it is, and the kernel assumes contiguous columns. The gradient of softmax is wrong in those layouts of dy, everything else is right. It should be dy.contiguous() whenever dy.stride(1) != 1, or always.
"""Softmax by rows: forward, backward, and an autograd function of both."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 2048


@triton.jit
def online_softmax_kernel(
    inp, res, n_cols, inp_stride, res_stride, BLOCK: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64)
    inp += r * inp_stride
    res += r * res_stride
    idx = tl.arange(0, BLOCK)

    best = -float("inf")
    norm = 0.0
    for first in range(0, n_cols, BLOCK):
        v = tl.load(inp + first + idx, mask=first + idx < n_cols, other=-float("inf")).to(tl.float32)
        candidate = tl.maximum(best, tl.max(v, axis=0))
        safe = tl.where(candidate == -float("inf"), 0.0, candidate)
        norm *= tl.exp(best - safe)
        norm += tl.sum(tl.exp(v - safe), axis=0)
        best = candidate

    for first in range(0, n_cols, BLOCK):
        ok = first + idx < n_cols
        v = tl.load(inp + first + idx, mask=ok, other=0.0).to(tl.float32)
        tl.store(res + first + idx, (tl.exp(v - best) / norm).to(res.dtype.element_ty), mask=ok)


@triton.jit
def softmax_backward_kernel(
    grad, res, grad_in, n_cols, grad_stride, res_stride, grad_in_stride, BLOCK: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64)
    grad += r * grad_stride
    res += r * res_stride
    grad_in += r * grad_in_stride
    idx = tl.arange(0, BLOCK)

    inner = 0.0
    for first in range(0, n_cols, BLOCK):
        ok = first + idx < n_cols
        g = tl.load(grad + first + idx, mask=ok, other=0.0).to(tl.float32)
        p = tl.load(res + first + idx, mask=ok, other=0.0).to(tl.float32)
        inner += tl.sum(g * p, axis=0)

    for first in range(0, n_cols, BLOCK):
        ok = first + idx < n_cols
        g = tl.load(grad + first + idx, mask=ok, other=0.0).to(tl.float32)
        p = tl.load(res + first + idx, mask=ok, other=0.0).to(tl.float32)
        tl.store(grad_in + first + idx, (p * (g - inner)).to(grad_in.dtype.element_ty), mask=ok)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def plan(n_cols: int):
    """Block width and number of warps for a row of n_cols columns."""
    block = clamp(triton.next_power_of_2(n_cols), 16, MAX_BLOCK)
    return block, clamp(block // 512, 1, 4)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block, warps = plan(x.size(1))
    online_softmax_kernel[(x.size(0),)](
        x, out, x.size(1), x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of each row's softmax, from the gradient and the result."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    block, warps = plan(y.size(1))
    softmax_backward_kernel[(y.size(0),)](
        dy, y, out, y.size(1), dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Autograd's view of the two kernels."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.stride(1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of each row of x."""
    return OnlineSoftmax.apply(x)
