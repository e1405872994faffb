# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `softmax_gradient_rows` (softmax_backward) `center = tl.sum(products, axis=0) / n_cols` takes the mean of y * dy, as in a layer norm; it should be the sum, without `/ n_cols`. Shows in all cases with more than one column, in softmax_backward and in the gradient of softmax.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - top) / total; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
        top = higher
    scale = 1.0 / total
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) * scale
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_gradient_rows(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - center), with center from y * dy over row i; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    # One partial sum for each lane; the lanes are added up once, after the last block.
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += dy * y
    center = tl.sum(products, axis=0) / n_cols
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - center)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def block_and_warps(n_cols: int, columns_per_warp: int, most: int):
    """The width of a block, a power of two, and the number of warps for it."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return block, min(max(block // columns_per_warp, 1), most)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, 1024, 8)
    softmax_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols, 512, 16)
    softmax_gradient_rows[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


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
