# labs/lab2_online_softmax/online_softmax.py | right | Block pointers for all loads and stores; the zeros that they pad with are replaced by -inf with tl.where before the maximum.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_window = tl.make_block_ptr(
        base=x_ptr + row * stride_x,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    y_window = tl.make_block_ptr(
        base=y_ptr + row * stride_y,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        # a block pointer cannot pad with -inf
        x = tl.where(start + tl.arange(0, BLOCK) < n_cols, x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_window = tl.advance(x_window, (BLOCK,))
    # back to the beginning of the row
    x_window = tl.make_block_ptr(
        base=x_ptr + row * stride_x,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x = tl.where(start + tl.arange(0, BLOCK) < n_cols, x, -float("inf"))
        y = tl.exp(x - m) / d
        tl.store(y_window, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_window = tl.advance(x_window, (BLOCK,))
        y_window = tl.advance(y_window, (BLOCK,))


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
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_window = tl.make_block_ptr(
        base=dy_ptr + row * stride_dy,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    y_window = tl.make_block_ptr(
        base=y_ptr + row * stride_y,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    dx_window = tl.make_block_ptr(
        base=dx_ptr + row * stride_dx,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_window = tl.advance(dy_window, (BLOCK,))
        y_window = tl.advance(y_window, (BLOCK,))
    # back to the beginning of the row
    dy_window = tl.make_block_ptr(
        base=dy_ptr + row * stride_dy,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    y_window = tl.make_block_ptr(
        base=y_ptr + row * stride_y,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_window, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_window = tl.advance(dy_window, (BLOCK,))
        y_window = tl.advance(y_window, (BLOCK,))
        dx_window = tl.advance(dx_window, (BLOCK,))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
