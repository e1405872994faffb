# labs/lab2_online_softmax/online_softmax.py | error | In `block_softmax_kernel`, both loads `tl.load(x_block, boundary_check=(0,), other=-float("inf"))` pass `other` with a block pointer, which Triton refuses with a ValueError while compiling. It must be `padding_option="zero"`, with `tl.where(cols < n_cols, x, -float("inf"))` after it (or plain pointers with a mask). In all cases; softmax_backward alone is right.
"""Softmax and its gradient with block pointers that move along a row."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def row_block(ptr, row, stride, n_cols, BLOCK: tl.constexpr):
    """A pointer to the first block of a row."""
    return tl.make_block_ptr(
        base=ptr + row * stride,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )


@triton.jit
def block_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One row for each program."""
    row = tl.program_id(axis=0).to(tl.int64)

    x_block = row_block(x_ptr, row, stride_x, n_cols, BLOCK)
    m = -float("inf")
    d = 0.0
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_block = tl.advance(x_block, (BLOCK,))

    x_block = row_block(x_ptr, row, stride_x, n_cols, BLOCK)
    y_block = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))


@triton.jit
def block_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), where s is the sum of y * dy; one row for each program."""
    row = tl.program_id(axis=0).to(tl.int64)

    dy_block = row_block(dy_ptr, row, stride_dy, n_cols, BLOCK)
    y_block = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    s = 0.0
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))

    dy_block = row_block(dy_ptr, row, stride_dy, n_cols, BLOCK)
    y_block = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    dx_block = row_block(dx_ptr, row, stride_dx, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_block, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
        dx_block = tl.advance(dx_block, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out`, where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    block_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y; it goes to `out`, where one is given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    block_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=max(4, block // 512),
    )  # fmt: skip
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
