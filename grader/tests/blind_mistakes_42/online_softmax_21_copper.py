# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: block pointers returned by a helper and moved with tl.advance, one maximum and one sum for each lane with one reduction after the loop, exp2 with log2(e) after the subtraction, BLOCK from triton.heuristics, tl.fma in the backward pass.
"""Online softmax with block pointers, one maximum and one sum for each lane, and exp2.

Lanes are joined once for each row, so that the loop over blocks has no reduction.
"""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(x):
    """exp(x), where x is a difference already."""
    return tl.exp2(x * LOG2E)


@triton.jit
def row_blocks(ptr, stride, n_cols, BLOCK: tl.constexpr):
    """Pointer to the first block of this program's row."""
    return tl.make_block_ptr(
        ptr + tl.program_id(0).to(tl.int64) * stride,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )


@triton.jit
def take(blocks):
    """The block in fp32, 0 past the end of the row."""
    return tl.load(blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), 4096)})
@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y of one row."""
    lanes = tl.arange(0, BLOCK)
    x_blocks = row_blocks(x_ptr, stride_x, n_cols, BLOCK)
    m = tl.full((BLOCK,), -float("inf"), tl.float32)
    d = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.where(start + lanes < n_cols, take(x_blocks), -float("inf"))
        m_new = tl.maximum(m, x)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * power(m - shift) + power(x - shift)
        m = m_new
        x_blocks = tl.advance(x_blocks, (BLOCK,))
    top = tl.max(m, axis=0)
    scale = 1.0 / tl.sum(d * power(m - top), axis=0)
    x_blocks = row_blocks(x_ptr, stride_x, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, stride_y, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        y = power(tl.minimum(take(x_blocks) - top, 0.0)) * scale
        tl.store(y_blocks, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_blocks = tl.advance(x_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))


@triton.heuristics({"BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), 4096)})
@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx of one row."""
    dy_blocks = row_blocks(dy_ptr, stride_dy, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, stride_y, n_cols, BLOCK)
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        products = tl.fma(take(dy_blocks), take(y_blocks), products)
        dy_blocks = tl.advance(dy_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))
    s = tl.sum(products, axis=0)
    dy_blocks = row_blocks(dy_ptr, stride_dy, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, stride_y, n_cols, BLOCK)
    dx_blocks = row_blocks(dx_ptr, stride_dx, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        dx = take(y_blocks) * (take(dy_blocks) - s)
        tl.store(dx_blocks, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_blocks = tl.advance(dy_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))
        dx_blocks = tl.advance(dx_blocks, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """The result, which is kept."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """The gradient of x."""
        (y,) = ctx.saved_tensors
        dx = softmax_backward(dy.contiguous(), y)
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
