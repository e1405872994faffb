# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `result_of`, used by `recompute_kernel` for the gradient of softmax: `tl.exp2(x - top) / total` lacks the factor log2(e); it should be `tl.exp2((x - top) * LOG2E) / total`. The y that is computed again is too flat and does not sum to 1, so dx of softmax() is wrong nearly everywhere (not where all differences to the maximum are 0 or so large that exp gives 0). softmax_forward, softmax_backward and the y of softmax are right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

The autograd function keeps the maximum and the sum of each row beside the input, two numbers of fp32 a row, and its
gradient computes y again from them. That y was never rounded, so fp16 and bf16 lose nothing on the way.
"""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, top_ptr, total_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, KEEP: tl.constexpr
):
    """y = softmax of row i of x in program i; with KEEP also the maximum and the sum of the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=0))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        top = higher
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - top) * LOG2E) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
    if KEEP:
        tl.store(top_ptr + row, top)
        tl.store(total_ptr + row, total)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - sum of y * dy) of row i in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def result_of(x_row, cols, n_cols, top, total):
    """Columns of y, from x and what the forward pass kept of its row; 0 behind the end."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    return tl.exp2(x - top) / total


@triton.jit
def recompute_kernel(
    dy_ptr, x_ptr, top_ptr, total_ptr, dx_ptr, n_cols, stride_dy, stride_x, stride_dx, BLOCK: tl.constexpr
):
    """Like backward_kernel, but from x, the maximum and the sum of each row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    top = tl.load(top_ptr + row)
    total = tl.load(total_ptr + row)
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(result_of(x_row, cols, n_cols, top, total) * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = result_of(x_row, cols, n_cols, top, total) * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def options(n_cols: int):
    """Width of a block and warps for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), BLOCK_MAX)
    return {"BLOCK": block, "num_warps": min(max(block // 512, 1), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous; into `out` if given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    forward_kernel[(n_rows,)](
        x, out, out, out, n_cols, x.stride(0), out.stride(0), KEEP=False, **options(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the result y; into `out` if given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options(n_cols)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax, with a gradient from its input."""

    @staticmethod
    def forward(ctx, x):
        """y from x; x is kept with the maximum and the sum of each row."""
        n_rows, n_cols = x.shape
        y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
        top = torch.empty((n_rows,), dtype=torch.float32, device=x.device)
        total = torch.empty((n_rows,), dtype=torch.float32, device=x.device)
        forward_kernel[(n_rows,)](
            x, y, top, total, n_cols, x.stride(0), y.stride(0), KEEP=True, **options(n_cols)
        )
        ctx.save_for_backward(x, top, total)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        x, top, total = ctx.saved_tensors
        n_rows, n_cols = x.shape
        dy = dy.contiguous()
        dx = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
        recompute_kernel[(n_rows,)](
            dy, x, top, total, dx, n_cols, dy.stride(0), x.stride(0), dx.stride(0), **options(n_cols)
        )
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
