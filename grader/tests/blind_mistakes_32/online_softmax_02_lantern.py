# labs/lab2_online_softmax/online_softmax.py | right | right: the maximum starts at the finite number -1e30, which lies below every value that the README allows (up to 1e28 from 0), so that -inf - -inf cannot occur; the second sweep takes the blocks in reverse order.
"""Softmax over rows of any length; the second sweep begins with the block that the first one read last."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def power_of_e(v):
    return tl.exp2(v * 1.4426950408889634)


@triton.jit
def read(row_ptr, index, n_cols, fill, BLOCK: tl.constexpr):
    """Block number index of a row as fp32, and `fill` behind the end of the row."""
    cols = index * BLOCK + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def write(row_ptr, index, n_cols, values, BLOCK: tl.constexpr):
    cols = index * BLOCK + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    blocks = tl.cdiv(n_cols, BLOCK)
    m = -1e30  # below every finite value of a row, and exp(-inf + 1e30) is 0
    d = 0.0
    for i in range(blocks):
        x = read(x_row, i, n_cols, -float("inf"), BLOCK)
        top = tl.maximum(m, tl.max(x, axis=0))
        d = d * power_of_e(m - top) + tl.sum(power_of_e(x - top), axis=0)
        m = top
    share = 1.0 / d
    for i in range(blocks):
        back = blocks - 1 - i
        x = read(x_row, back, n_cols, -float("inf"), BLOCK)
        write(y_row, back, n_cols, power_of_e(x - m) * share, BLOCK)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    blocks = tl.cdiv(n_cols, BLOCK)
    s = 0.0
    for i in range(blocks):
        dy = read(dy_row, i, n_cols, 0.0, BLOCK)
        y = read(y_row, i, n_cols, 0.0, BLOCK)
        s += tl.sum(dy * y, axis=0)
    for i in range(blocks):
        back = blocks - 1 - i
        dy = read(dy_row, back, n_cols, 0.0, BLOCK)
        y = read(y_row, back, n_cols, 0.0, BLOCK)
        write(dx_row, back, n_cols, y * (dy - s), BLOCK)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.size(0), x.size(1)
    block = clamp(triton.next_power_of_2(cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(rows,)](
        x, out, cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = y.size(0), y.size(1)
    block = clamp(triton.next_power_of_2(cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(rows,)](
        dy,
        y,
        out,
        cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
