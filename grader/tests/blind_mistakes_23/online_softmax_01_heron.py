# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel, after the first loop: `total = tl.sum(mass, axis=0)` adds the sums of the lanes although each is relative to the maximum of its own lane, so the normaliser is too large and rows sum to less than 1. It should be tl.sum(mass * tl.exp(peak - top), axis=0).
"""Softmax with one running maximum for each lane, and its gradient."""

import torch
import triton
import triton.language as tl

WIDEST_FORWARD = 4096
WIDEST_BACKWARD = 8192
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i. Lane k sees the columns k, k + BLOCK, ...: no reduction inside the loop."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    src = x_ptr + row * stride_x + lanes
    dst = y_ptr + row * stride_y + lanes
    peak = tl.full((BLOCK,), LOWEST, tl.float32)
    mass = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        v = tl.load(src + start, mask=lanes < n_cols - start, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, v)
        mass = mass * tl.exp(peak - higher) + tl.exp(v - higher)
        peak = higher
    # One reduction of each kind for the whole row.
    top = tl.max(peak, axis=0)
    total = tl.sum(mass, axis=0)
    for start in range(0, n_cols, BLOCK):
        live = lanes < n_cols - start
        v = tl.load(src + start, mask=live, other=-float("inf")).to(tl.float32)
        y = tl.exp(v - top) / total
        tl.store(dst + start, y.to(y_ptr.dtype.element_ty), mask=live)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), again with one sum for each lane."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    g_src = dy_ptr + row * stride_dy + lanes
    y_src = y_ptr + row * stride_y + lanes
    dst = dx_ptr + row * stride_dx + lanes
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        live = lanes < n_cols - start
        g = tl.load(g_src + start, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_src + start, mask=live, other=0.0).to(tl.float32)
        products += g * y
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        live = lanes < n_cols - start
        g = tl.load(g_src + start, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_src + start, mask=live, other=0.0).to(tl.float32)
        tl.store(dst + start, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=live)


def width(n_cols: int, most: int) -> int:
    """The block for rows of n_cols."""
    return max(32, min(triton.next_power_of_2(n_cols), most))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = width(n_cols, WIDEST_FORWARD)
    warps = 4 if block <= 2048 else 8
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = width(n_cols, WIDEST_BACKWARD)
    warps = 4 if block <= 2048 else 16
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
