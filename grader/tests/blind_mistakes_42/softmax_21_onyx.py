# labs/lab4_production_slice/softmax.py | right | Maximum and sum of its own for each lane, joined once by tl.reduce with an own function, in exp2; the second sweep goes backwards; blocks of at most 8192, counted by a constexpr, with n_cols at run time.
"""Softmax over rows of any length: every lane goes its own way, and the lanes meet once for each row."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

LOG2E = tl.constexpr(1.4426950408889634)
FLOOR = tl.constexpr(-3.4028234663852886e38)  # below any finite entry, and finite itself
WIDEST = 8192
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def weigh(low, high):
    """Return exp(low - high) for low <= high: the difference first, so that far from 0 it keeps its digits."""
    return tl.exp2((low - high) * LOG2E)


@triton.jit
def meet(top_a, total_a, top_b, total_b):
    """Join maximum and sum of two lanes, where each sum is in units of exp(maximum)."""
    top = tl.maximum(top_a, top_b)
    return top, total_a * weigh(top_a, top) + total_b * weigh(top_b, top)


@triton.jit
def plus(a, b):
    """Add, for tl.reduce."""
    return a + b


@triton.autotune(configs=CONFIGS, key=["n_cols", "BLOCK"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)) of row i; lane k sees columns k, k + BLOCK, k + 2 BLOCK and so on.

    The second sweep goes backwards: what was read last is still in the cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_lane = x_ptr + row * stride_x + lanes
    y_lane = y_ptr + row * stride_y + lanes
    top = tl.full((BLOCK,), FLOOR, dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(BLOCKS):
        at = block * BLOCK
        x = tl.load(x_lane + at, mask=lanes < n_cols - at, other=-float("inf")).to(tl.float32)
        top, total = meet(top, total, tl.maximum(x, FLOOR), tl.where(x >= FLOOR, 1.0, 0.0))
    row_top, row_total = tl.reduce((top, total), 0, meet)
    for block in range(BLOCKS):
        at = (BLOCKS - 1 - block) * BLOCK
        inside = lanes < n_cols - at
        x = tl.load(x_lane + at, mask=inside, other=-float("inf")).to(tl.float32)
        y = weigh(x, row_top) / row_total
        tl.store(y_lane + at, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["n_cols", "BLOCK"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, BLOCKS: tl.constexpr
):
    """dx = y * dy - y * sum(y * dy) of row i, with a sum for each lane and one tl.reduce for all of them."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_lane = dy_ptr + row * stride_dy + lanes
    y_lane = y_ptr + row * stride_y + lanes
    dx_lane = dx_ptr + row * stride_dx + lanes
    shares = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(BLOCKS):
        at = block * BLOCK
        inside = lanes < n_cols - at
        dy = tl.load(dy_lane + at, mask=inside, other=0.0).to(tl.float32)
        shares += tl.load(y_lane + at, mask=inside, other=0.0).to(tl.float32) * dy
    common = tl.reduce(shares, 0, plus)
    for block in range(BLOCKS):
        at = (BLOCKS - 1 - block) * BLOCK
        inside = lanes < n_cols - at
        dy = tl.load(dy_lane + at, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_lane + at, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - common)
        tl.store(dx_lane + at, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def blocks_of(n_cols):
    """Return the width of a block for rows of n_cols columns, and how many blocks such a row has."""
    width = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"BLOCK": width, "BLOCKS": triton.cdiv(n_cols, width)}


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **blocks_of(n_cols))
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **blocks_of(n_cols)
    )
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
        """Return y for x."""
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
