# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.forward keeps the result y, but OnlineSoftmax.backward treats what was kept as the input and computes `softmax_forward(kept)` again, so the gradient is that at softmax(softmax(x)). The gradient of softmax is wrong in every case with more than one column; softmax_forward and softmax_backward by themselves are right. It should use the kept y as it is (or keep x).
"""Online softmax over rows of any length, with a gradient."""

import torch
import triton
import triton.language as tl

BLOCK_COLS = 4096


@triton.jit
def columns(tile, n_cols, BLOCK: tl.constexpr):
    """Numbers of the columns of a tile, and which of them exist."""
    cols = tile * BLOCK + tl.arange(0, BLOCK)
    return cols, cols < n_cols


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, n_tiles, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    maximum = -float("inf")
    denominator = 0.0
    for tile in range(0, n_tiles):
        cols, valid = columns(tile, n_cols, BLOCK)
        x = tl.load(x_ptr + cols, mask=valid, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        updated = tl.maximum(maximum, tl.max(x, axis=0))
        reference = tl.where(updated == -float("inf"), 0.0, updated)
        correction = tl.exp(maximum - reference)
        denominator = denominator * correction + tl.sum(tl.exp(x - reference), axis=0)
        maximum = updated
    for tile in range(0, n_tiles):
        cols, valid = columns(tile, n_cols, BLOCK)
        x = tl.load(x_ptr + cols, mask=valid, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - maximum) / denominator
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=valid, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, n_tiles, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    weighted = 0.0
    for tile in range(0, n_tiles):
        cols, valid = columns(tile, n_cols, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=valid, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=valid, other=0.0, eviction_policy="evict_last").to(tl.float32)
        weighted += tl.sum(dy * y, axis=0)
    for tile in range(0, n_tiles):
        cols, valid = columns(tile, n_cols, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=valid, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=valid, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = (dy - weighted) * y
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=valid, eviction_policy="evict_first")


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; returns `out` where it is given, or else a new matrix."""
    result = out
    if result is None:
        result = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 32, BLOCK_COLS)
    online_softmax_kernel[(n_rows,)](
        x,
        result,
        n_cols,
        triton.cdiv(n_cols, block),
        x.stride(0),
        result.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 4),
    )
    return result


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax."""
    result = out
    if result is None:
        result = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 32, BLOCK_COLS)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        result,
        n_cols,
        triton.cdiv(n_cols, block),
        dy.stride(0),
        y.stride(0),
        result.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
    )
    return result


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with the gradient above."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (kept,) = ctx.saved_tensors
        probabilities = softmax_forward(kept)
        return softmax_backward(dy.contiguous(), probabilities)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
