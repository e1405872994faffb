# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax of rows. A row that fits in one block stays in registers; a longer one is swept forth and back."""

import torch
import triton
import triton.language as tl

WIDEST = 16384


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr):
    """Softmax of row program_id."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        live = lanes < n_cols
        x = tl.load(x_row + lanes, mask=live, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_row + lanes, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=live)
    else:
        n_blocks = tl.cdiv(n_cols, BLOCK)
        top = -float("inf")
        total = 0.0
        for k in range(0, n_blocks):
            cols = k * BLOCK + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(x, axis=0))
            shift = tl.where(higher == -float("inf"), 0.0, higher)
            total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift), axis=0)
            top = higher
        # Last block first: it is what the caches still hold.
        for k in range(0, n_blocks):
            cols = (n_blocks - 1 - k) * BLOCK + lanes
            live = cols < n_cols
            x = tl.load(x_row + cols, mask=live, other=-float("inf")).to(tl.float32)
            tl.store(y_row + cols, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=live)


@triton.jit
def gradient_rows(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """Gradient of row program_id."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        live = lanes < n_cols
        dy = tl.load(dy_row + lanes, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_row + lanes, mask=live, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=live)
    else:
        n_blocks = tl.cdiv(n_cols, BLOCK)
        dot = 0.0
        for k in range(0, n_blocks):
            cols = k * BLOCK + lanes
            live = cols < n_cols
            dy = tl.load(dy_row + cols, mask=live, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=live, other=0.0).to(tl.float32)
            dot += tl.sum(y * dy, axis=0)
        for k in range(0, n_blocks):
            cols = (n_blocks - 1 - k) * BLOCK + lanes
            live = cols < n_cols
            dy = tl.load(dy_row + cols, mask=live, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=live, other=0.0).to(tl.float32)
            dx = y * (dy - dot)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=live)


def shape_of_launch(n_cols: int, columns_per_warp: int) -> dict:
    """Width of a block, whether it holds a whole row, and the number of warps."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return {
        "BLOCK": block,
        "ONE_BLOCK": n_cols <= block,
        "num_warps": max(1, min(block // columns_per_warp, 32)),
    }


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    options = shape_of_launch(n_cols, 1024)
    softmax_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and the result y."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    options = shape_of_launch(n_cols, 512)
    gradient_rows[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options
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
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
