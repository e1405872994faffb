# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient with one statistic for each lane of a block; the lanes meet once, at the end of a row.

The backward kernel has a stride for the columns of dy, too, so a gradient of any layout is read where it is.
"""

import torch
import triton
import triton.language as tl

MOST = 4096  # columns of the widest block: 16 for each thread of 8 warps


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    # Lane k has seen the columns k, k + BLOCK, ...; a lane that has seen -inf alone, or nothing, keeps sum 0.
    peaks = tl.full([BLOCK], -float("inf"), tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(peaks, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        sums = sums * tl.exp(peaks - shift) + tl.exp(x - shift)
        peaks = higher
    m = tl.max(peaks, axis=0)
    d = tl.sum(sums * tl.exp(peaks - m), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy_row,
    stride_dy_col,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy_row
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    products = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols.to(tl.int64) * stride_dy_col, mask=cols < n_cols, other=0.0)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0)
        products += dy.to(tl.float32) * y.to(tl.float32)
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols.to(tl.int64) * stride_dy_col, mask=cols < n_cols, other=0.0)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0)
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def width_and_warps(n_cols: int):
    block = min(triton.next_power_of_2(n_cols), MOST)
    return block, max(block // 512, 1)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; columns are contiguous, rows any number of elements apart."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block, warps = width_and_warps(n_cols)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax, from dy of any layout and the forward result y."""
    if out is None:
        out = y.new_empty(y.shape)
    n_rows, n_cols = y.shape
    block, warps = width_and_warps(n_cols)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
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
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
