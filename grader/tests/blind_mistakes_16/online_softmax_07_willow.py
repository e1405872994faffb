# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax with block pointers."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    src = tl.make_block_ptr(
        base=x_ptr + row * stride_x, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    for start in range(0, n_cols, BLOCK):
        x = tl.load(src, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x = tl.where(start + lane < n_cols, x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        src = tl.advance(src, (BLOCK,))
    src = tl.make_block_ptr(
        base=x_ptr + row * stride_x, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    dst = tl.make_block_ptr(
        base=y_ptr + row * stride_y, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    for start in range(0, n_cols, BLOCK):
        x = tl.load(src, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x = tl.where(start + lane < n_cols, x, -float("inf"))
        y = tl.exp(x - m) / d
        tl.store(dst, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        src = tl.advance(src, (BLOCK,))
        dst = tl.advance(dst, (BLOCK,))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_block = tl.make_block_ptr(
        base=dy_ptr + row * stride_dy, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    y_block = tl.make_block_ptr(
        base=y_ptr + row * stride_y, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
    dy_block = tl.make_block_ptr(
        base=dy_ptr + row * stride_dy, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    y_block = tl.make_block_ptr(
        base=y_ptr + row * stride_y, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    dx_block = tl.make_block_ptr(
        base=dx_ptr + row * stride_dx, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_block, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
        dx_block = tl.advance(dx_block, (BLOCK,))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
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
        num_warps=clamp(block // 512, 4, 8),
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
