# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward launches softmax_backward_kernel with dy and y exchanged: the kernel's parameters are (probs_ptr, grad_ptr, ...), the launch passes (dy, y, ...) with their strides in the same order; so dx = dy * (y - s) in place of y * (dy - s). Wrong in every case of softmax_backward and in dx of softmax; the launch should pass y, dy, out, n_cols, y.stride(0), dy.stride(0), out.stride(0)
"""Row softmax with the online recurrence, and the vector-Jacobian product that belongs to it."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    scores_ptr,
    probs_ptr,
    n_cols,
    scores_stride,
    probs_stride,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    scores_ptr += i * scores_stride
    probs_ptr += i * probs_stride

    largest = -float("inf")
    norm = 0.0
    for first in range(0, n_cols, BLOCK):
        j = first + tl.arange(0, BLOCK)
        s = tl.load(scores_ptr + j, mask=j < n_cols, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(s, 0))
        # While only -inf has been seen, 0 serves as the reference.
        reference = tl.where(larger > -float("inf"), larger, 0.0)
        norm = norm * tl.exp(largest - reference) + tl.sum(tl.exp(s - reference), 0)
        largest = larger

    inverse = 1.0 / norm
    for first in range(0, n_cols, BLOCK):
        j = first + tl.arange(0, BLOCK)
        s = tl.load(scores_ptr + j, mask=j < n_cols, other=-float("inf")).to(tl.float32)
        p = tl.exp(s - largest) * inverse
        tl.store(probs_ptr + j, p.to(probs_ptr.dtype.element_ty), mask=j < n_cols)


@triton.jit
def softmax_backward_kernel(
    probs_ptr,
    grad_ptr,
    out_ptr,
    n_cols,
    probs_stride,
    grad_stride,
    out_stride,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    probs_ptr += i * probs_stride
    grad_ptr += i * grad_stride
    out_ptr += i * out_stride

    dot = 0.0
    for first in range(0, n_cols, BLOCK):
        j = first + tl.arange(0, BLOCK)
        p = tl.load(probs_ptr + j, mask=j < n_cols, other=0.0).to(tl.float32)
        g = tl.load(grad_ptr + j, mask=j < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(p * g, 0)

    for first in range(0, n_cols, BLOCK):
        j = first + tl.arange(0, BLOCK)
        p = tl.load(probs_ptr + j, mask=j < n_cols, other=0.0).to(tl.float32)
        g = tl.load(grad_ptr + j, mask=j < n_cols, other=0.0).to(tl.float32)
        tl.store(out_ptr + j, (p * (g - dot)).to(out_ptr.dtype.element_ty), mask=j < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block > 8192 else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=y.device, dtype=y.dtype)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
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
        probs = softmax_forward(x)
        ctx.save_for_backward(probs)
        return probs

    @staticmethod
    def backward(ctx, dy):
        (probs,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), probs)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
