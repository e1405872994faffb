# labs/lab2_online_softmax/online_softmax.py | right | Each lane has its own maximum and sum with a single exp2 a turn, of minus the distance between the element and the maximum: it is added to the sum if the maximum stays, and multiplies the sum if it rises. The start is the lowest finite fp32 number, so -inf needs no case; lanes are joined once. Nothing is wrong.
"""Softmax with one power of two for each lane and turn, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # finite, so that no difference from it is NaN
FORWARD_WIDEST = 4096
BACKWARD_WIDEST = 8192
COLUMNS_OF_A_WARP = 512  # 16 for each thread


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = 2 ** (LOG2E * (x[i, :] - top)) / total; program i owns row i.

    Each lane keeps the larger of its maximum and the next element, and adds one power of the distance of the two:
    to the sum if the maximum stays, and as a factor of the sum if it rises.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lane
    y_ptrs = y_ptr + row * stride_y + lane

    peak = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    mass = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        x = tl.load(x_ptrs + start, mask=inside, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        power = tl.exp2(tl.abs(x - peak) * -LOG2E)
        mass = tl.where(x > peak, mass * power + 1.0, mass + power)
        peak = tl.maximum(peak, x)

    top = tl.max(peak, axis=0)
    total = tl.sum(mass * tl.exp2((peak - top) * LOG2E), axis=0)
    scale = 1.0 / total

    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        x = tl.load(x_ptrs + start, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - top) * LOG2E) * scale
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s); s, the sum of y * dy, grows in each lane and is joined once."""
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lane
    y_ptrs = y_ptr + row * stride_y + lane
    dx_ptrs = dx_ptr + row * stride_dx + lane

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products = tl.fma(dy, y, products)
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def options(n_cols: int, widest: int) -> dict:
    """Block and warps for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "num_warps": max(block // COLUMNS_OF_A_WARP, 1)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    online_softmax_kernel[(n_rows,)](x, y, n_cols, x.stride(0), y.stride(0), **options(n_cols, FORWARD_WIDEST))
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.shape
    dx = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device) if out is None else out
    softmax_backward_kernel[(n_rows,)](
        dy, y, dx, n_cols, dy.stride(0), y.stride(0), dx.stride(0), **options(n_cols, BACKWARD_WIDEST)
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
        """dx from dy, whose columns may lie apart."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
