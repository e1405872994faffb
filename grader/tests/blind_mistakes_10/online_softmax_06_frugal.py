# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward copies the gradient only where a stride is 0 (`if dy.stride(0) == 0 or dy.stride(1) == 0`), i.e. where it is expanded; must copy wherever dy.stride(1) is not 1 ("any layout"). Shows for a transposed gradient, or one that is every second column of a wider matrix: its columns are read as if they were neighbours.
"""Online softmax and its gradient, without copies that are not needed."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 8192


@triton.jit
def softmax_kernel(src, dst, n_cols, src_stride, dst_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    src += row * src_stride
    dst += row * dst_stride
    lane = tl.arange(0, BLOCK)
    peak = -float("inf")
    norm = 0.0
    for c in range(0, n_cols, BLOCK):
        v = tl.load(src + c + lane, mask=c + lane < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(v, axis=0))
        zero_point = tl.where(higher == -float("inf"), 0.0, higher)
        norm *= tl.exp(peak - zero_point)
        norm += tl.sum(tl.exp(v - zero_point), axis=0)
        peak = higher
    for c in range(0, n_cols, BLOCK):
        v = tl.load(src + c + lane, mask=c + lane < n_cols, other=-float("inf")).to(tl.float32)
        r = tl.exp(v - peak) / norm
        tl.store(dst + c + lane, r.to(dst.dtype.element_ty), mask=c + lane < n_cols)


@triton.jit
def softmax_grad_kernel(grad, res, dst, n_cols, grad_stride, res_stride, dst_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    grad += row * grad_stride
    res += row * res_stride
    dst += row * dst_stride
    lane = tl.arange(0, BLOCK)
    dot = 0.0
    for c in range(0, n_cols, BLOCK):
        g = tl.load(grad + c + lane, mask=c + lane < n_cols, other=0.0).to(tl.float32)
        r = tl.load(res + c + lane, mask=c + lane < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(g * r, axis=0)
    for c in range(0, n_cols, BLOCK):
        g = tl.load(grad + c + lane, mask=c + lane < n_cols, other=0.0).to(tl.float32)
        r = tl.load(res + c + lane, mask=c + lane < n_cols, other=0.0).to(tl.float32)
        tl.store(dst + c + lane, (r * (g - dot)).to(dst.dtype.element_ty), mask=c + lane < n_cols)


def fresh(like: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix for a result."""
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def width(n_cols: int) -> int:
    return min(MAX_BLOCK, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = fresh(x)
    rows, cols = x.shape
    softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=width(cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = fresh(y)
    rows, cols = y.shape
    softmax_grad_kernel[(rows,)](
        dy, y, out, cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=width(cols), num_warps=8
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
        # the gradient of a sum is one number, expanded
        if dy.stride(0) == 0 or dy.stride(1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
