# labs/lab2_online_softmax/online_softmax.py | right | The backward kernel has a column stride for dy, so expanded, transposed and spread gradients are read in place without `contiguous()`; the maximum starts at a finite -3e38 in place of -inf, and heuristics choose the block.
"""Online softmax and a gradient that reads dy through both of its strides, so that no layout needs a copy."""

import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), 4096)})
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y of one row. The maximum starts at a finite number, whose difference to itself is 0."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -3.0e38  # far below every finite value of a row
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), 4096)})
@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols), any layout
    y_ptr,  # (n_rows, n_cols), columns contiguous
    dx_ptr,  # like y
    n_cols,
    stride_dy,
    stride_dy_col,  # elements from one column of dy to the next; 0 where dy is expanded
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx of one row: the sum s of y * dy, lane by lane, then y * (dy - s)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row + cols.to(tl.int64) * stride_dy_col, mask=inside, other=0.0)
        y = tl.load(y_row + cols, mask=inside, other=0.0)
        products += y.to(tl.float32) * dy.to(tl.float32)
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row + cols.to(tl.int64) * stride_dy_col, mask=inside, other=0.0)
        y = tl.load(y_row + cols, mask=inside, other=0.0)
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](x, y, n_cols, x.stride(0), y.stride(0), num_warps=4)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy of any layout and the forward result y."""
    dx = torch.empty(y.shape, dtype=y.dtype, device=y.device) if out is None else out
    n_rows, n_cols = y.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, dx, n_cols, dy.stride(0), dy.stride(1), y.stride(0), dx.stride(0), num_warps=8
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; y alone is kept."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy as it is: its strides are arguments of the kernel."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
