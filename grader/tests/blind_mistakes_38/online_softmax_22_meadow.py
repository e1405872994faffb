# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel computes the gradient of log_softmax, not of softmax: `total` is the sum of g alone and the store takes `g - p * total` (dx = dy - y * sum(dy)). It should be dx = y * (dy - s) with s = sum(y * dy). softmax_backward and the gradient of softmax() are wrong for every size, dtype and stride; only rows of one column, where both formulas give 0, are right. The rows of dx still sum to 0.
"""Online softmax, its gradient, and the autograd function of both."""

import torch
import triton
import triton.language as tl


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    # exp(t) = exp2(t * log2(e)); the difference is taken first, so that large x keep their digits
    m = -float("inf")
    d = 0.0
    for begin in range(0, n_cols, BLOCK):
        col = begin + lane
        x = tl.load(x_row + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=0))
        ref = tl.where(top > -float("inf"), top, 0.0)
        d *= tl.exp2((m - ref) * 1.4426950408889634)
        d += tl.sum(tl.exp2((x - ref) * 1.4426950408889634), axis=0)
        m = top

    for begin in range(0, n_cols, BLOCK):
        col = begin + lane
        x = tl.load(x_row + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_first")
        p = tl.exp2((x.to(tl.float32) - m) * 1.4426950408889634) / d
        tl.store(y_row + col, p.to(y_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    # the part that all columns of the row share
    total = 0.0
    for begin in range(0, n_cols, BLOCK):
        col = begin + lane
        g = tl.load(dy_row + col, mask=col < n_cols, other=0.0, eviction_policy="evict_last")
        total += tl.sum(g.to(tl.float32), axis=0)

    for begin in range(0, n_cols, BLOCK):
        col = begin + lane
        g = tl.load(dy_row + col, mask=col < n_cols, other=0.0, eviction_policy="evict_first")
        p = tl.load(y_row + col, mask=col < n_cols, other=0.0, eviction_policy="evict_first")
        g = g.to(tl.float32)
        p = p.to(tl.float32)
        dx = g - p * total
        tl.store(dx_row + col, dx.to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def plan(n_cols: int, columns_per_warp: int):
    """Width of a block and number of warps for rows of this length."""
    block = min(triton.next_power_of_2(n_cols), 8192)
    return {"BLOCK": block, "num_warps": max(block // columns_per_warp, 1)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **plan(n_cols, 1024))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **plan(n_cols, 512)
    )
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
    """Softmax over the last dimension, with a gradient."""
    return OnlineSoftmax.apply(x)
