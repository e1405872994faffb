# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_backward_kernel, the only loop: dx of a block is stored as p * (g - s) with the sum s of the blocks so far, so for rows longer than a block (2048 columns) every block but the last is wrong, in softmax_backward and in the gradient of softmax; s must run over the whole row first and a second loop must store dx. (2) softmax_backward, launch: the last stride is `y.stride(0)` where `out.stride(0)` belongs, so where the rows of out (or, without out, of the new contiguous matrix) lie another distance apart than those of y and there is more than one row, dx goes to wrong places, between the rows or past the end
"""Online softmax over rows and its gradient, one program for each row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 2048


@triton.jit
def fold(m, d, x):
    """Maximum and sum of a row so far, with one more block x."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new > -float("inf"), m_new, 0.0)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        m, d = fold(m, d, x.to(tl.float32))
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) * scale
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        g = tl.load(dy_row + cols, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(y_row + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)
        tl.store(dx_row + cols, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, columns contiguous, any row stride."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    rows, cols = x.shape
    online_softmax_kernel[(rows,)](
        x,
        out,
        cols,
        x.stride(0),
        out.stride(0),
        BLOCK=min(FORWARD_BLOCK, triton.next_power_of_2(cols)),
        num_warps=8 if cols > 4096 else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    rows, cols = dy.shape
    softmax_backward_kernel[(rows,)](
        dy,
        y,
        out,
        cols,
        dy.stride(0),
        y.stride(0),
        y.stride(0),
        BLOCK=min(BACKWARD_BLOCK, triton.next_power_of_2(cols)),
        num_warps=4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with the gradient above."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
