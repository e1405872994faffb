# labs/lab2_online_softmax/online_softmax.py | corner | fold(), `new = tl.where(new == -float("inf"), 0.0, new)`: the replaced maximum 0 is carried on as m, so after a first block (512 columns) that holds only -inf m never falls below 0; where the rest of the row is far below 0 (below about -85) the exponentials vanish and y is 0 or inaccurate. Only the shift in the exponents should be 0; m itself should stay -inf.
"""Lab 2. The two steps of the online softmax are functions of their own: fold a block, finish a block."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 512
BACKWARD_BLOCK = 2048


@triton.jit
def fold(m, d, x):
    """Take a block x into the maximum m and the sum d, and return both."""
    new = tl.maximum(m, tl.max(x, axis=0))
    new = tl.where(new == -float("inf"), 0.0, new)  # -inf - -inf would be NaN
    d = d * tl.exp(m - new) + tl.sum(tl.exp(x - new), axis=0)
    return new, d


@triton.jit
def finish(m, d, x):
    """The softmax of block x. The sum is kept away from 0, so that the quotient is always defined."""
    return tl.exp(x - m) / tl.maximum(d, 1e-37)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + offs
    y_ptrs = y_ptr + row * stride_y + offs
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        ok = offs < n_cols - start
        x = tl.load(x_ptrs + start, mask=ok, other=-float("inf")).to(tl.float32)
        m, d = fold(m, d, x)
    for start in range(0, n_cols, BLOCK):
        ok = offs < n_cols - start
        x = tl.load(x_ptrs + start, mask=ok, other=-float("inf")).to(tl.float32)
        tl.store(y_ptrs + start, finish(m, d, x).to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + offs
    y_ptrs = y_ptr + row * stride_y + offs
    dx_ptrs = dx_ptr + row * stride_dx + offs
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        ok = offs < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=ok, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        ok = offs < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - dot)).to(dx_ptr.dtype.element_ty), mask=ok)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.size(0), x.size(1)
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    grid = (n_rows,)
    online_softmax_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=2)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx = y * (dy - sum of y * dy)."""
    n_rows, n_cols = dy.size(0), dy.size(1)
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    grid = (n_rows,)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[grid](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=4)
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
    """Differentiable softmax."""
    return OnlineSoftmax.apply(x)
