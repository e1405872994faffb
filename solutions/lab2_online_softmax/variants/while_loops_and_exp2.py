"""EXPECT PASS from softmax_forward and softmax_backward and softmax: while loops and exp2."""

import math
from typing import Optional

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
MAX_BLOCK = 8192


@triton.jit
def fold(m, d, x):
    """Take one more block of columns into the running maximum and the running sum."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == float("-inf"), 0.0, m_new)
    # Subtract first, scale then: the difference is small near the maximum, so the product rounds little.
    d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
    return m_new, d


@triton.heuristics({"num_warps": lambda args: 2 ** min(4, max(0, int(math.log2(args["BLOCK"])) - 9))})
@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = tl.full((), float("-inf"), tl.float32)
    d = tl.full((), 0.0, tl.float32)
    start = 0
    while start < n_cols:
        x = tl.load(x_ptr + start + lanes, mask=start + lanes < n_cols, other=float("-inf"))
        m, d = fold(m, d, x.to(tl.float32))
        start += BLOCK

    scale = 1.0 / d
    start = 0
    while start < n_cols:
        inside = start + lanes < n_cols
        x = tl.load(x_ptr + start + lanes, mask=inside, other=float("-inf")).to(tl.float32)
        tl.store(
            y_ptr + start + lanes, (tl.exp2((x - m) * LOG2E) * scale).to(y_ptr.dtype.element_ty), mask=inside
        )
        start += BLOCK


@triton.heuristics({"num_warps": lambda args: 2 ** min(5, max(1, int(math.log2(args["BLOCK"])) - 8))})
@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = tl.full((), 0.0, tl.float32)
    start = 0
    while start < n_cols:
        inside = start + lanes < n_cols
        dy = tl.load(dy_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        start += BLOCK

    start = 0
    while start < n_cols:
        inside = start + lanes < n_cols
        dy = tl.load(dy_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)
        start += BLOCK


def _block(n_cols: int) -> int:
    return min(MAX_BLOCK, 1 << math.ceil(math.log2(n_cols)))


def softmax_forward(x: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    n_rows, n_cols = x.size()
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=_block(n_cols))
    return out


def softmax_backward(
    dy: torch.Tensor, y: torch.Tensor, *, out: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """Gradient with respect to the input of the softmax whose result is y."""
    if out is None:
        out = torch.empty_like(dy)
    if y.numel() == 0:
        return out
    n_rows, n_cols = y.size()
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=_block(n_cols)
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
    """Differentiable."""
    return OnlineSoftmax.apply(x)
