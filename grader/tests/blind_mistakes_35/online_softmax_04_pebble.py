# labs/lab2_online_softmax/online_softmax.py | error | In plan, which both passes share, the grid is written (n_rows), a number in brackets, where Triton wants a tuple: every launch, forward and backward, raises TypeError: object of type 'int' has no len(). Should be (n_rows,).
"""Softmax over rows of any length, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Two sweeps: maximum and sum, then the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        block_max = tl.max(x, axis=0)
        m_new = tl.maximum(m, block_max)
        safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        correction = tl.exp(m - safe)
        d = d * correction + tl.sum(tl.exp(x - safe), axis=0)
        m = m_new
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) * scale
        tl.store(y_row_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Two sweeps: the sum of y * dy, then dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def plan(matrix, widest, per_warp, fewest, most):
    """Grid and options of a launch over the rows of a matrix."""
    n_rows, n_cols = matrix.shape
    grid = (n_rows)
    block = min(triton.next_power_of_2(n_cols), widest)
    warps = fewest
    while warps < most and warps * per_warp < block:
        warps *= 2
    return grid, {"BLOCK": block, "num_warps": warps}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    grid, options = plan(x, FORWARD_BLOCK, per_warp=1024, fewest=1, most=8)
    online_softmax_kernel[grid](x, out, x.shape[1], x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    grid, options = plan(dy, BACKWARD_BLOCK, per_warp=512, fewest=4, most=32)
    softmax_backward_kernel[grid](
        dy, y, out, dy.shape[1], dy.stride(0), y.stride(0), out.stride(0), **options
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
