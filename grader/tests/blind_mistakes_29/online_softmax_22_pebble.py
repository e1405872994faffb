# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel, second loop: the stored gradient is g * y - s, so s is subtracted without the factor y; shows in every case of softmax_backward and in every gradient of softmax (only a row of one column is right); should be g * y - y * s
"""Row-wise softmax in Triton: forward with a running maximum, backward from the stored result."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def load_f32(row_ptr, cols, n_cols, fill):
    """Columns of one row as fp32, and `fill` behind the end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    best = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_f32(x_ptr, cols, n_cols, -float("inf"))
        higher = tl.maximum(best, tl.max(x, axis=0))
        # exp(-inf - 0) is 0, and -inf - -inf never happens
        base = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(best - base) + tl.sum(tl.exp(x - base), axis=0)
        best = higher
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_f32(x_ptr, cols, n_cols, -float("inf"))
        y = tl.exp(x - best) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    g_ptr, y_ptr, dx_ptr, n_cols, stride_g, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    g_ptr += row * stride_g
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        gy = load_f32(g_ptr, cols, n_cols, 0.0) * load_f32(y_ptr, cols, n_cols, 0.0)
        s += tl.sum(gy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        gy = load_f32(g_ptr, cols, n_cols, 0.0) * load_f32(y_ptr, cols, n_cols, 0.0)
        tl.store(dx_ptr + cols, (gy - s).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def block_and_warps(n_cols: int, per_warp: int):
    """Width of a block, and a number of warps that suits it."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return block, min(max(block // per_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, 2048)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input, from dy and y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block, warps = block_and_warps(n_cols, 512)
    strides = dy.stride(0), y.stride(0), out.stride(0)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
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
    """Differentiable softmax of each row of x."""
    return OnlineSoftmax.apply(x)
