# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_backward_kernel dx is computed as y * dy - s; s must be multiplied by y, too: y * (dy - s). Every gradient, of softmax_backward and of softmax(), is off by s * (1 - y); the forward pass is right.
"""Softmax where each lane keeps its own running maximum and sum; lanes are combined once at the end of a row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lane = tl.arange(0, BLOCK)

    # no reduction inside the loop: lane j sees columns j, j + BLOCK, j + 2 * BLOCK, ...
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    mass = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        mass = mass * tl.exp(top - shift) + tl.exp(x - shift)
        top = higher

    m = tl.max(top, axis=0)
    d = tl.sum(mass * tl.exp(top - m), axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def load_fp32(ptr, col, n_cols):
    return tl.load(ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        products += load_fp32(dy_ptr, col, n_cols) * load_fp32(y_ptr, col, n_cols)
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + lane
        dy = load_fp32(dy_ptr, col, n_cols)
        y = load_fp32(y_ptr, col, n_cols)
        dx = y * dy - s
        tl.store(dx_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    y = torch.empty_like(x) if out is None else out
    block = min(FORWARD_BLOCK, triton.next_power_of_2(x.size(1)))
    online_softmax_kernel[(x.size(0),)](
        x, y, x.size(1), x.stride(0), y.stride(0), BLOCK=block, num_warps=8 if block > 2048 else 4
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the rows of x."""
    dx = torch.empty_like(dy) if out is None else out
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(y.size(1)))
    softmax_backward_kernel[(y.size(0),)](
        dy, y, dx, y.size(1), dy.stride(0), y.stride(0), dx.stride(0), BLOCK=block, num_warps=8 if block > 2048 else 4
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy.contiguous(), ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
