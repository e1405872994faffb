# labs/lab2_online_softmax/online_softmax.py | corner | `gradient_kernel`, second loop: `g = tl.load(g_row + cols, ...)` takes the columns of the gradient as contiguous; it should be `g_row + cols.to(tl.int64) * col_stride_g`, as in the first loop. It shows in softmax where dy is expanded, transposed or has every second column of a wider matrix (wrong elements, or reads outside of dy); a dy with contiguous columns is right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

The incoming gradient may lie anyhow: both of its strides go to the kernel, so no copy of it is made.
"""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 4096
WARPS = [triton.Config({}, num_warps=warps) for warps in (4, 8, 16)]


@triton.autotune(configs=WARPS, key=["n_cols"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i of x, in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    largest = -float("inf")
    denominator = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        so_far = tl.maximum(largest, tl.max(x, axis=0))
        base = tl.where(so_far == -float("inf"), 0.0, so_far)
        denominator *= tl.exp(largest - base)
        denominator += tl.sum(tl.exp(x - base), axis=0)
        largest = so_far
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - largest) / denominator
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.autotune(configs=WARPS, key=["n_cols"])
@triton.jit
def gradient_kernel(
    g_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    row_stride_g,
    col_stride_g,
    row_stride_y,
    row_stride_dx,
    BLOCK: tl.constexpr,
):
    """dx = y * (g - dot), dot = sum of y * g, of row i in program i. A transposed g may be large: int64 offsets."""
    row = tl.program_id(axis=0).to(tl.int64)
    g_row = g_ptr + row * row_stride_g
    y_row = y_ptr + row * row_stride_y
    dx_row = dx_ptr + row * row_stride_dx
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        exists = cols < n_cols
        g = tl.load(g_row + cols.to(tl.int64) * col_stride_g, mask=exists, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=exists, other=0.0).to(tl.float32)
        dot += tl.sum(y * g, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        exists = cols < n_cols
        g = tl.load(g_row + cols, mask=exists, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=exists, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (g - dot)).to(dx_ptr.dtype.element_ty), mask=exists)


def block_for(n_cols: int) -> int:
    """Columns of a block."""
    return min(triton.next_power_of_2(n_cols), BLOCK_MAX)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous; into `out` if given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block_for(n_cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy in any layout and the result y; into `out` if given."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        BLOCK=block_for(n_cols),
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
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
