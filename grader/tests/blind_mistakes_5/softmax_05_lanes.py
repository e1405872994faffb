# labs/lab4_production_slice/softmax.py | honest | Right; the recurrence is kept for each lane in base 2 (exp2 with log2 e), lanes joined after the loop, own loads and stores.
"""Softmax as in the lab, but the recurrence is kept per lane and in base 2."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOG2E = tl.constexpr(1.44269504088896340736)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    x_at = x_ptr + pid * stride_x + lane
    y_at = y_ptr + pid * stride_y + lane

    hi = tl.full([BLOCK], -3.4028234663852886e38, tl.float32)
    acc = tl.full([BLOCK], 0.0, tl.float32)
    for done in range(0, N_COLS, BLOCK):
        v = tl.load(x_at + done, mask=lane < N_COLS - done, other=float("-inf")).to(tl.float32)
        now = tl.where(v > hi, v, hi)
        acc = acc * tl.exp2((hi - now) * LOG2E) + tl.exp2((v - now) * LOG2E)
        hi = now
    top = tl.max(hi, 0)
    total = tl.sum(acc * tl.exp2((hi - top) * LOG2E), 0)

    for done in range(0, N_COLS, BLOCK):
        v = tl.load(x_at + done, mask=lane < N_COLS - done, other=float("-inf")).to(tl.float32)
        r = tl.exp2((v - top) * LOG2E) / total
        tl.store(y_at + done, r.to(y_ptr.dtype.element_ty), mask=lane < N_COLS - done)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.size())
    n = x.size(-1)
    on(softmax_kernel, x)[(x.size(0),)](x, out, x.stride(0), out.stride(0), N_COLS=n, BLOCK=block_of(n))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    pid = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_at = dy_ptr + pid * stride_dy + lane
    y_at = y_ptr + pid * stride_y + lane
    dx_at = dx_ptr + pid * stride_dx + lane
    acc = tl.full([BLOCK], 0.0, tl.float32)
    for done in range(0, N_COLS, BLOCK):
        keep = lane < N_COLS - done
        g = tl.load(dy_at + done, mask=keep, other=0.0).to(tl.float32)
        p = tl.load(y_at + done, mask=keep, other=0.0).to(tl.float32)
        acc += p * g
    products = tl.sum(acc, 0)
    for done in range(0, N_COLS, BLOCK):
        keep = lane < N_COLS - done
        g = tl.load(dy_at + done, mask=keep, other=0.0).to(tl.float32)
        p = tl.load(y_at + done, mask=keep, other=0.0).to(tl.float32)
        tl.store(dx_at + done, (p * (g - products)).to(dx_ptr.dtype.element_ty), mask=keep)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    if out is None:
        out = y.new_empty(y.size())
    n = y.size(-1)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[(y.size(0),)](dy, y, out, *strides, N_COLS=n, BLOCK=block_of(n))
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        probabilities = forward_op(x)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, dy):
        (probabilities,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), probabilities)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
