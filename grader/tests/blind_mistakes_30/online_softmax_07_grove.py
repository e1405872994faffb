# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel, first sweep: `shift = tl.where(seen, 0.0, best)` has its two values exchanged: with a finite maximum the shift is 0, so d is sum exp(x) (and is multiplied by exp(m) from block to block) while y is exp(x - m) / d; rows are wrong by a factor exp(-m), everywhere unless the maximum is 0 (overflow for large values, NaN behind a leading block of -inf). Should be tl.where(seen, best, 0.0)
"""Softmax of long rows with the online maximum."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    scores_ptr, probs_ptr, width, scores_stride, probs_stride, BLOCK: tl.constexpr
):
    r = tl.program_id(axis=0).to(tl.int64)
    scores_ptr += r * scores_stride
    probs_ptr += r * probs_stride
    m = -float("inf")
    d = 0.0
    for first in range(0, width, BLOCK):
        j = first + tl.arange(0, BLOCK)
        s = tl.load(scores_ptr + j, mask=j < width, other=-float("inf")).to(tl.float32)
        best = tl.maximum(m, tl.max(s, axis=0))
        # As long as a row has shown only -inf, the maximum is no shift to subtract.
        seen = best > -float("inf")
        shift = tl.where(seen, 0.0, best)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(s - shift), axis=0)
        m = best
    for first in range(0, width, BLOCK):
        j = first + tl.arange(0, BLOCK)
        s = tl.load(scores_ptr + j, mask=j < width, other=-float("inf")).to(tl.float32)
        p = tl.exp(s - m) / d
        tl.store(probs_ptr + j, p.to(probs_ptr.dtype.element_ty), mask=j < width)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    width,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    r = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += r * stride_dy
    y_ptr += r * stride_y
    dx_ptr += r * stride_dx
    dot = 0.0
    for first in range(0, width, BLOCK):
        j = first + tl.arange(0, BLOCK)
        g = tl.load(dy_ptr + j, mask=j < width, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + j, mask=j < width, other=0.0).to(tl.float32)
        dot += tl.sum(g * p, axis=0)
    for first in range(0, width, BLOCK):
        j = first + tl.arange(0, BLOCK)
        g = tl.load(dy_ptr + j, mask=j < width, other=0.0).to(tl.float32)
        p = tl.load(y_ptr + j, mask=j < width, other=0.0).to(tl.float32)
        tl.store(dx_ptr + j, (p * (g - dot)).to(dx_ptr.dtype.element_ty), mask=j < width)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def plan(n_cols: int, widest: int, per_warp: int) -> dict:
    """Width and warps of a program."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "num_warps": clamp(block // per_warp, 1, 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    options = plan(n_cols, FORWARD_BLOCK, 2048)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    options = plan(n_cols, BACKWARD_BLOCK, 512)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options
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
