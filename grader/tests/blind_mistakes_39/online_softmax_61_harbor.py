# labs/lab2_online_softmax/online_softmax.py | corner | online_softmax_kernel, first loop, `if top - m > SLACK: d = d * tl.exp(m - top)`: d is rescaled only where the maximum rises by more than 8, but the new terms and the m kept for the second sweep always refer to the new maximum, so smaller rises leave the old sum on the old scale and the row sums to less than 1; shows only in rows of more than one block (more than 4096 columns) of which a later block raises the maximum by more than 0 and at most 8; right: rescale at every rise (or keep m, and take the exponents relative to it, while the rise is small)
"""Row softmax of any width: online forward pass, gradient, and an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192
SLACK = 8.0


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, SLACK: tl.constexpr, BLOCK: tl.constexpr):
    """Program i turns row i of x into row i of y."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=0))
        if top - m > SLACK:
            d = d * tl.exp(m - top)
        base = tl.where(top == -float("inf"), 0.0, top)
        d = d + tl.sum(tl.exp(x - base), axis=0)
        m = top

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy), one row for each program."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        SLACK=SLACK,
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
