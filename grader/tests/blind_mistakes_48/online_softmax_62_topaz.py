# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `softmax_backward_kernel`, `dx = products(dy_block, y_block) - s` gives y * dy - s; it should be y * dy - y * s, that is y * (dy - s). Shows in all cases of softmax_backward and of the gradient of softmax, but for rows of one column.
"""Softmax by the online recurrence and its gradient, with block pointers that move along the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Two sweeps over one row: maximum and sum, then the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    block = tl.make_block_ptr(x_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x = tl.where(start + lanes < n_cols, x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        block = tl.advance(block, (BLOCK,))
    source = tl.make_block_ptr(x_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    target = tl.make_block_ptr(y_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(source, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x = tl.minimum(x, m)  # of the lanes behind the row, which hold 0
        y = tl.exp(x - m) / d
        tl.store(target, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        source = tl.advance(source, (BLOCK,))
        target = tl.advance(target, (BLOCK,))


@triton.jit
def products(dy_block, y_block):
    """dy * y of one block in fp32, and 0 behind the row."""
    dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
    y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
    return dy * y


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Two sweeps over one row: the sum of the products, then the gradient."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    dy_block = tl.make_block_ptr(dy_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    partial = tl.zeros((BLOCK,), tl.float32)
    for _ in range(0, n_cols, BLOCK):
        partial += products(dy_block, y_block)
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
    s = tl.sum(partial, axis=0)

    dy_block = tl.make_block_ptr(dy_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    dx_block = tl.make_block_ptr(dx_row, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        dx = products(dy_block, y_block) - s
        tl.store(dx_block, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
        dx_block = tl.advance(dx_block, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 4096 else 4
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
        num_warps=8 if block > 2048 else 4,
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
