# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In the second loop of softmax_backward_kernel the values of pair() are taken in the wrong order (y, dy = pair(...) where pair returns dy, y), so dx = dy * (y - s) instead of y * (dy - s). Forward is right.
"""Online softmax and its gradient, with small helpers for the loads."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def statistics(x_row_ptr, n_cols, BLOCK: tl.constexpr):
    """Maximum m of a row, and d, the sum of exp(x - m)."""
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m, d = statistics(x_row_ptr, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def pair(dy_row_ptr, y_row_ptr, cols, n_cols):
    """The same columns of dy and of y, 0 past the end."""
    inside = cols < n_cols
    dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0)
    y = tl.load(y_row_ptr + cols, mask=inside, other=0.0)
    return dy.to(tl.float32), y.to(tl.float32)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy, y = pair(dy_row_ptr, y_row_ptr, start + tl.arange(0, BLOCK), n_cols)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y, dy = pair(dy_row_ptr, y_row_ptr, cols, n_cols)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def shape_of_launch(n_cols, widest, per_warp):
    """Block and number of warps for rows of n_cols."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, max(1, min(16, block // per_warp))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = x.new_empty(x.shape) if out is None else out
    n_rows, n_cols = x.shape
    block, warps = shape_of_launch(n_cols, FORWARD_BLOCK, 1024)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y."""
    out = dy.new_empty(dy.shape) if out is None else out
    n_rows, n_cols = dy.shape
    block, warps = shape_of_launch(n_cols, BACKWARD_BLOCK, 512)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
        return softmax_backward(dy.contiguous(), *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
