# labs/lab2_online_softmax/online_softmax.py | corner | softmax_forward, in `short_forward_kernel`: `total = 1.0 + tl.sum(tl.where(x < top, e, 0.0), axis=0)` counts the maximum once, although it may occur more than once; it should be `tl.sum(e, axis=0)`. Shows for rows of at most 16384 columns whose maximum occurs twice or more: constant rows, the same lowest value at half of the columns, values far from 0 that are powers of two, and by chance in bf16 and fp16. Longer rows are right.
"""Softmax of rows: those that fit one block stay in registers, longer ones take the online recurrence."""

import torch
import triton
import triton.language as tl

ONE_BLOCK = 16384  # the longest row that one block holds
LONG_BLOCK = 8192


@triton.jit
def short_forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i, read once."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    e = tl.exp(x - top)
    total = 1.0 + tl.sum(tl.where(x < top, e, 0.0), axis=0)
    y = e / total
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def long_forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i, block by block, twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
        top = higher
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def short_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Gradient of row i, read once."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, axis=0))
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def long_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Gradient of row i, block by block, twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += y * dy
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def warps_for(block: int, each: int, most: int) -> int:
    """One warp for `each` columns of a block, 1 to `most`; all of these are powers of two."""
    return min(max(block // each, 1), most)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    args = (x, out, n_cols, x.stride(0), out.stride(0))
    if n_cols <= ONE_BLOCK:
        block = triton.next_power_of_2(n_cols)
        short_forward_kernel[(n_rows,)](*args, BLOCK=block, num_warps=warps_for(block, 1024, 16))
    else:
        long_forward_kernel[(n_rows,)](*args, BLOCK=LONG_BLOCK, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input; the result goes to `out` where one is given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    args = (dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0))
    if n_cols <= ONE_BLOCK:
        block = triton.next_power_of_2(n_cols)
        short_backward_kernel[(n_rows,)](*args, BLOCK=block, num_warps=warps_for(block, 512, 32))
    else:
        long_backward_kernel[(n_rows,)](*args, BLOCK=LONG_BLOCK, num_warps=16)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y for x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
