# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In the forward kernel block 0 is folded before the loop (m and d are initialised from it), but the loop over the blocks starts at 0 again (`range(0, n_cols, BLOCK)`), so block 0 is counted twice in d. Rows of one block come out half as large (they sum to 0.5), longer rows too small by block 0's share. Wrong in nearly every case (right only where block 0 adds nothing, as with a leading block of -inf). The loop should be `range(BLOCK, n_cols, BLOCK)`.
"""Softmax of rows: an online first sweep, a second one that normalises, and the gradient."""

import math

import torch
import triton
import triton.language as tl

WIDEST = 8192
LOG2E = tl.constexpr(math.log2(math.e))


@triton.jit
def or_zero(m):
    """m where it is finite, else 0: a shift that never makes inf - inf."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def exp_from(x, shift):
    return tl.exp2((x - shift) * LOG2E)


@triton.jit
def forward_kernel(src, dst, n_cols, src_stride, dst_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    src += row * src_stride
    dst += row * dst_stride
    lanes = tl.arange(0, BLOCK)

    head = tl.load(src + lanes, mask=lanes < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(head, axis=0)
    d = tl.sum(exp_from(head, or_zero(m)), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = or_zero(m_new)
        d = d * exp_from(m, shift) + tl.sum(exp_from(x, shift), axis=0)
        m = m_new

    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = exp_from(x, m) * scale
        tl.store(dst + cols, y.to(dst.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(dy, y, dx, n_cols, dy_stride, y_stride, dx_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy += row * dy_stride
    y += row * y_stride
    dx += row * dx_stride
    lanes = tl.arange(0, BLOCK)

    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        g = tl.load(dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(g * p, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        g = tl.load(dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        p = tl.load(y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx + cols, (p * (g - dot)).to(dx.dtype.element_ty), mask=cols < n_cols)


def plan(n_cols: int, columns_per_warp: int):
    """Width of a block, and warps for it."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return block, max(1, block // columns_per_warp)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    rows, cols = x.shape
    block, warps = plan(cols, 1024)
    forward_kernel[(rows,)](x, y, cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=warps)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dx = torch.empty_like(dy, memory_format=torch.contiguous_format) if out is None else out
    rows, cols = dy.shape
    block, warps = plan(cols, 512)
    backward_kernel[(rows,)](
        dy, y, dx, cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=block, num_warps=warps
    )
    return dx


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
