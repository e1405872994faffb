# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax with a maximum and a sum for each lane, merged once at the end of the row.

The second sweep runs from the last block to the first: what was read last is still near.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def power(t):
    """exp(t), by way of exp2; t is a difference already."""
    return tl.exp2(t * 1.4426950408889634)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + lane, mask=start + lane < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(m, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        d = d * power(m - shift) + power(x - shift)
        m = higher

    top = tl.max(m, axis=0)
    total = tl.sum(d * power(m - top), axis=0)

    n_blocks = (n_cols + BLOCK - 1) // BLOCK
    for i in range(0, n_blocks):
        cols = (n_blocks - 1 - i) * BLOCK + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, power(x - top) / total, mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_row + start + lane, mask=start + lane < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=start + lane < n_cols, other=0.0).to(tl.float32)
        products += dy * y
    mean = tl.sum(products, axis=0)  # of dy, with y as the weights

    n_blocks = (n_cols + BLOCK - 1) // BLOCK
    for i in range(0, n_blocks):
        cols = (n_blocks - 1 - i) * BLOCK + lane
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (dy - mean) * y, mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def launch_options(n_cols: int, widest: int, per_warp: int) -> dict:
    """Width of a block, and how many warps share it."""
    block = clamp(triton.next_power_of_2(n_cols), 32, widest)
    return {"BLOCK": block, "num_warps": clamp(block // per_warp, 1, 8)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    options = launch_options(n_cols, FORWARD_BLOCK, 512)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    options = launch_options(n_cols, BACKWARD_BLOCK, 512)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, **options)
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
    return OnlineSoftmax.apply(x)
