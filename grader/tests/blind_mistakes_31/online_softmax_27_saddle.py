# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows of any length. Full blocks are read without a mask, the rest of a row with one."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048


@triton.jit
def fold(m, d, x):
    """The maximum and the sum relative to it, after the block x."""
    higher = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(higher == -float("inf"), 0.0, higher)
    return higher, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    full = n_cols // BLOCK * BLOCK  # columns in full blocks
    rest = full + lanes
    in_rest = rest < n_cols

    # The rest first; it may be empty.
    x = tl.load(x_row + rest, mask=in_rest, other=-float("inf")).to(tl.float32)
    m = -float("inf")
    d = 0.0
    m, d = fold(m, d, x)
    for start in range(0, full, BLOCK):
        x = tl.load(x_row + start + lanes).to(tl.float32)
        m, d = fold(m, d, x)

    for start in range(0, full, BLOCK):
        x = tl.load(x_row + start + lanes).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty))
    x = tl.load(x_row + rest, mask=in_rest, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_row + rest, y.to(y_ptr.dtype.element_ty), mask=in_rest)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    full = n_cols // BLOCK * BLOCK
    rest = full + lanes
    in_rest = rest < n_cols

    # The last columns stay in registers for both sums and results.
    dy_rest = tl.load(dy_row + rest, mask=in_rest, other=0.0).to(tl.float32)
    y_rest = tl.load(y_row + rest, mask=in_rest, other=0.0).to(tl.float32)
    s = tl.sum(dy_rest * y_rest, axis=0)
    for start in range(0, full, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, full, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        tl.store(dx_row + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty))
    tl.store(dx_row + rest, (y_rest * (dy_rest - s)).to(dx_ptr.dtype.element_ty), mask=in_rest)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(block // 512, 1, 4)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax that keeps its input, and computes the result a second time for the gradient.

    The caller may then overwrite the result in place, for example with a dropout, before the backward pass.
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        y = softmax_forward(x)
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
