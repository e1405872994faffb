# labs/lab2_online_softmax/online_softmax.py | right | Unusual: m starts at the finite -3e38 and so needs no -inf case; the whole blocks before the last are loaded without a mask, the last block (partial or whole) is loaded once, stays in registers and is stored first, and the second sweep goes backwards through the other blocks; exp2 with log2(e) after the subtraction. The backward pass has the same order.
"""Softmax by rows: whole blocks forwards without masks, the rest in registers, then backwards through the row."""

import torch
import triton
import triton.language as tl

WIDEST = 16384
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(difference):
    """e to the difference, which is at most 0."""
    return tl.exp2(difference * LOG2_E)


@triton.jit
def grow(top, total, x):
    """Maximum and sum of the row with the block x added."""
    higher = tl.maximum(top, tl.max(x, axis=0))
    return higher, total * power(top - higher) + tl.sum(power(x - higher), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i. Its last block, whole or not, is loaded once and stays in registers."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    last = (n_cols - 1) // BLOCK * BLOCK  # first column of the last block

    top = -3.0e38  # finite, and below every finite value of a row
    total = 0.0
    for start in range(0, last, BLOCK):
        x = tl.load(x_row + start + lanes, eviction_policy="evict_last").to(tl.float32)
        top, total = grow(top, total, x)
    inside = last + lanes < n_cols
    rest = tl.load(
        x_row + last + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_first"
    ).to(tl.float32)
    top, total = grow(top, total, rest)

    y_rest = power(rest - top) / total
    tl.store(y_row + last + lanes, y_rest.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")
    for done in range(0, last, BLOCK):
        start = last - BLOCK - done  # what was read last is the most likely to be in the cache
        x = tl.load(x_row + start + lanes, eviction_policy="evict_first").to(tl.float32)
        y = power(x - top) / total
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty), eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy), in the same order."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    last = (n_cols - 1) // BLOCK * BLOCK
    total = 0.0
    for start in range(0, last, BLOCK):
        dy = tl.load(dy_row + start + lanes, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + start + lanes, eviction_policy="evict_last").to(tl.float32)
        total += tl.sum(dy * y, axis=0)
    inside = last + lanes < n_cols
    dy_rest = tl.load(
        dy_row + last + lanes, mask=inside, other=0.0, eviction_policy="evict_first"
    ).to(tl.float32)
    y_rest = tl.load(
        y_row + last + lanes, mask=inside, other=0.0, eviction_policy="evict_first"
    ).to(tl.float32)
    total += tl.sum(dy_rest * y_rest, axis=0)
    dx_rest = (y_rest * (dy_rest - total)).to(dx_ptr.dtype.element_ty)
    tl.store(dx_row + last + lanes, dx_rest, mask=inside, eviction_policy="evict_first")
    for done in range(0, last, BLOCK):
        start = last - BLOCK - done
        dy = tl.load(dy_row + start + lanes, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + start + lanes, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - total)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), eviction_policy="evict_first")


def width(n_cols: int) -> int:
    """Columns of a block."""
    return min(triton.next_power_of_2(n_cols), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    y = x.new_empty(x.shape) if out is None else out
    block = width(x.size(1))
    warps = 8 if block == WIDEST else min(max(block // 1024, 1), 4)
    online_softmax_kernel[(x.size(0),)](
        x, y, x.size(1), x.stride(0), y.stride(0), BLOCK=block, num_warps=warps
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    dx = dy.new_empty(dy.shape) if out is None else out
    block = width(dy.size(1))
    softmax_backward_kernel[(dy.size(0),)](
        dy, y, dx, dy.size(1), dy.stride(0), y.stride(0), dx.stride(0),
        BLOCK=block, num_warps=min(max(block // 512, 4), 32),
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
