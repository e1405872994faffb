# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel, between the loops: the store of the last block uses `cols`, `mask`, `g` and `p`, which exist only inside the first loop; Python, and so the interpreter, keeps them after the loop and the result there is right, but Triton's compiler does not carry a name out of a loop that was not defined before it, so for a GPU the kernel never compiles, for any size or dtype; softmax_backward and the gradient of softmax fail, the forward pass is right; the second loop should load all blocks again (or the names be defined before the loop)
"""Softmax over rows of any length, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        block_max = tl.max(x, axis=0)
        # A block without a finite value has no share in the sum: measure it from 0.
        block_base = tl.where(block_max == -float("inf"), 0.0, block_max)
        block_sum = tl.sum(tl.exp(x - block_base), axis=0)
        m_new = tl.maximum(m, block_max)
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - base) + block_sum * tl.exp(block_max - base)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    """dx = y * (dy - s); a row that fits one block is read only once."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        g = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)
    # The last block is still in registers.
    tl.store(dx_row_ptr + cols, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=mask)
    # All blocks before it are full.
    for start in range(0, n_cols - BLOCK, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = tl.load(dy_row_ptr + cols).to(tl.float32)
        p = tl.load(y_row_ptr + cols).to(tl.float32)
        tl.store(dx_row_ptr + cols, (p * (g - s)).to(dx_ptr.dtype.element_ty))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, rows any number of elements apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block <= 8192 else 8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        num_warps=4 if block <= 2048 else 16,
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
