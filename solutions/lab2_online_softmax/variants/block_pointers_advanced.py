"""EXPECT PASS from softmax_forward and softmax_backward and softmax: tl.advance moves pointers."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048


@triton.jit
def row_block(ptr, row, stride, n_cols, BLOCK: tl.constexpr):
    """Block pointer to the first BLOCK columns of a row."""
    return tl.make_block_ptr(ptr + row.to(tl.int64) * stride, (n_cols,), (1,), (0,), (BLOCK,), (0,))


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    x_block = row_block(x_ptr, row, stride_x, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x = tl.where(start + lanes < n_cols, x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, 0))
        safe = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), 0)
        m = m_new
        x_block = tl.advance(x_block, (BLOCK,))

    x_block = row_block(x_ptr, row, stride_x, n_cols, BLOCK)
    y_block = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    for _ in range(tl.cdiv(n_cols, BLOCK)):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0)
    dy_block = row_block(dy_ptr, row, stride_dy, n_cols, BLOCK)
    y_block = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    s = tl.zeros((BLOCK,), tl.float32)
    for _ in range(tl.cdiv(n_cols, BLOCK)):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += dy * y
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
    total = tl.sum(s, 0)

    dy_block = row_block(dy_ptr, row, stride_dy, n_cols, BLOCK)
    y_block = row_block(y_ptr, row, stride_y, n_cols, BLOCK)
    dx_block = row_block(dx_ptr, row, stride_dx, n_cols, BLOCK)
    for _ in range(tl.cdiv(n_cols, BLOCK)):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        tl.store(dx_block, (y * (dy - total)).to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
        dx_block = tl.advance(dx_block, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    assert x.dim() == 2 and x.is_floating_point()
    y = out
    if y is None:
        y = torch.empty_like(x)
    rows, cols = x.shape
    block = min(triton.next_power_of_2(cols), FORWARD_BLOCK)
    online_softmax_kernel[(rows,)](
        x_ptr=x, y_ptr=y, n_cols=cols, stride_x=x.stride(0), stride_y=y.stride(0), BLOCK=block, num_warps=4
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    assert dy.shape == y.shape, "dy and y must have one shape"
    dx = torch.empty_like(dy) if out is None else out
    rows, cols = dy.shape
    block = min(triton.next_power_of_2(cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(rows,)](
        dy, y, dx, cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=block, num_warps=8
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y = softmax_forward(x)
        if ctx.needs_input_grad[0]:
            ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: torch.Tensor):
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy if dy.is_contiguous() else dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last axis, with a gradient."""
    return OnlineSoftmax.apply(x)
