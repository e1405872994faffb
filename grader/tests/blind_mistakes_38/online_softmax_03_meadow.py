# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In the second sweep of the forward kernel the numerator is `tl.exp2(x - m)`, without the factor log2(e), whereas d was summed as exp2((x - m) * log2(e)) in the first sweep. The numerators are 2^(x - m) instead of e^(x - m), so each row is too flat and sums to more than 1. Wrong in nearly every case (right only where all x - m are 0 or so far below 0 that both powers vanish: one column, constant rows, values far apart). It should be `tl.exp2((x - m) * LOG2E)`.
"""Online softmax and its gradient; the loops count columns themselves."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_fwd(
    x_ptr,
    out_ptr,
    width,
    x_pitch,
    out_pitch,
    CHUNK: tl.constexpr,
):
    r = tl.program_id(axis=0).to(tl.int64)
    x_ptr = x_ptr + r * x_pitch
    out_ptr = out_ptr + r * out_pitch

    running_max = -float("inf")
    running_sum = 0.0
    at = 0
    while at < width:
        c = at + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + c, mask=c < width, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(running_max, tl.max(x, axis=0))
        base = tl.where(higher == -float("inf"), 0.0, higher)
        old = running_sum * tl.exp2((running_max - base) * LOG2E)
        running_sum = old + tl.sum(tl.exp2((x - base) * LOG2E), axis=0)
        running_max = higher
        at += CHUNK

    inverse = 1.0 / running_sum
    at = 0
    while at < width:
        c = at + tl.arange(0, CHUNK)
        x = tl.load(x_ptr + c, mask=c < width, other=-float("inf"), eviction_policy="evict_first")
        x = x.to(tl.float32)
        p = tl.exp2(x - running_max) * inverse
        tl.store(out_ptr + c, p.to(out_ptr.dtype.element_ty), mask=c < width)
        at += CHUNK


@triton.jit
def softmax_bwd(
    grad_ptr,
    p_ptr,
    dx_ptr,
    width,
    grad_pitch,
    p_pitch,
    dx_pitch,
    CHUNK: tl.constexpr,
):
    r = tl.program_id(axis=0).to(tl.int64)
    grad_ptr = grad_ptr + r * grad_pitch
    p_ptr = p_ptr + r * p_pitch
    dx_ptr = dx_ptr + r * dx_pitch

    mean = 0.0
    at = 0
    while at < width:
        c = at + tl.arange(0, CHUNK)
        grad = tl.load(grad_ptr + c, mask=c < width, other=0.0).to(tl.float32)
        p = tl.load(p_ptr + c, mask=c < width, other=0.0).to(tl.float32)
        mean += tl.sum(grad * p, axis=0)
        at += CHUNK

    at = 0
    while at < width:
        c = at + tl.arange(0, CHUNK)
        grad = tl.load(grad_ptr + c, mask=c < width, other=0.0).to(tl.float32)
        p = tl.load(p_ptr + c, mask=c < width, other=0.0).to(tl.float32)
        tl.store(dx_ptr + c, ((grad - mean) * p).to(dx_ptr.dtype.element_ty), mask=c < width)
        at += CHUNK


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    height, width = x.shape
    if out is None:
        out = x.new_empty((height, width))
    chunk = min(4096, triton.next_power_of_2(width))
    softmax_fwd[(height,)](
        x,
        out,
        width,
        x.stride(0),
        out.stride(0),
        CHUNK=chunk,
        num_warps=4 if chunk > 1024 else 2,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    height, width = dy.shape
    if out is None:
        out = dy.new_empty((height, width))
    chunk = min(4096, triton.next_power_of_2(width))
    softmax_bwd[(height,)](
        dy,
        y,
        out,
        width,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        CHUNK=chunk,
        num_warps=8 if chunk > 1024 else 4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        p = softmax_forward(x)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, dy):
        p = ctx.saved_tensors[0]
        grad = dy if dy.is_contiguous() else dy.contiguous()
        return softmax_backward(grad, p)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
