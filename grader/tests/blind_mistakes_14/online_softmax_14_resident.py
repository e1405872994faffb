# labs/lab2_online_softmax/online_softmax.py | right | Persistent programs take every PROGRAMS-th row in an outer loop, the block width comes from a heuristic, and exponentials are exp2 of a scaled difference.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096
PROGRAMS = 132 * 8  # about as many as are resident on the GPU at a time
LOG2_E = tl.constexpr(1.44269504088896340736)


@triton.jit
def powers(x, base):
    """e ** (x - base)."""
    return tl.exp2((x - base) * LOG2_E)


@triton.jit
def row_at(ptr, row, stride):
    """Where a row begins."""
    return ptr + tl.cast(row, tl.int64) * stride


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), FORWARD_BLOCK)})
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        x_row = row_at(x_ptr, row, stride_x)
        y_row = row_at(y_ptr, row, stride_y)
        # The lowest finite number of fp32 as the first maximum: then no difference is -inf - -inf.
        top = -3.4028234663852886e38
        total = 0.0
        for first in range(0, n_cols, BLOCK):
            cols = first + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(x, axis=0))
            total = total * powers(top, higher) + tl.sum(powers(x, higher), axis=0)
            top = higher
        for first in range(0, n_cols, BLOCK):
            cols = first + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = powers(x, top) / total
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), BACKWARD_BLOCK)})
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    lanes = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        dy_row = row_at(dy_ptr, row, stride_dy)
        y_row = row_at(y_ptr, row, stride_y)
        dx_row = row_at(dx_ptr, row, stride_dx)
        inner = 0.0
        for first in range(0, n_cols, BLOCK):
            cols = first + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            inner += tl.sum(dy * y, axis=0)
        for first in range(0, n_cols, BLOCK):
            cols = first + lanes
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = (dy - inner) * y
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; returns `out`, or a new matrix."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (min(n_rows, PROGRAMS),)
    online_softmax_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; returns `out`, or a new matrix."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    grid = (min(n_rows, PROGRAMS),)
    softmax_backward_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=4
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return softmax_backward(grad.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
