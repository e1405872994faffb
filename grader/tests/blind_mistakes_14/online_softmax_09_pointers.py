# labs/lab2_online_softmax/online_softmax.py | two mistakes | In online_softmax_kernel, first loop, `padding_option="zero"` makes lanes past the end of the row 0, so they enter the maximum and add exp(0 - m) to the sum; after the load they should be set to -inf with tl.where. In OnlineSoftmax.backward, the line `dy.contiguous()` drops its result, so an expanded or transposed dy reaches the kernel as it is; it should be dy = dy.contiguous().
"""Online softmax with block pointers."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    m = -float("inf")
    d = 0.0
    # first sweep: maximum and sum
    x_block = tl.make_block_ptr(x_ptr + row * stride_x, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_block = tl.advance(x_block, (BLOCK,))
    # second sweep: normalise
    x_block = tl.make_block_ptr(x_ptr + row * stride_x, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr + row * stride_y, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))


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
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    # first sweep: the inner product of y and dy
    s = 0.0
    dy_block = tl.make_block_ptr(dy_ptr + row * stride_dy, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr + row * stride_y, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
    # second sweep: dx
    dy_block = tl.make_block_ptr(dy_ptr + row * stride_dy, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_block = tl.make_block_ptr(y_ptr + row * stride_y, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    dx_block = tl.make_block_ptr(dx_ptr + row * stride_dx, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_block, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
        dx_block = tl.advance(dx_block, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 4096 else 4
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
        num_warps=16 if block > 4096 else 4,
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
        dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
