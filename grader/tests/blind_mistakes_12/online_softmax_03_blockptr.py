# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | backward: dx = y * dy - y * y * s, it must be y * dy - y * s, because s already holds the second y; every gradient with more than one column is wrong, in softmax_backward and in softmax
"""Softmax, forward and backward. The backward kernel walks along the row with block pointers."""

import torch
import triton
import triton.language as tl
from triton import cdiv

BLOCK_FORWARD = 16384
BLOCK_BACKWARD = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    src = x_ptr + row * stride_x
    dst = y_ptr + row * stride_y

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp(m - base)
        d += tl.sum(tl.exp(x - base), axis=0)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(dst + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """J = diag(y) - y y^T is symmetric, so dx = J dy = y * dy - (y y^T) dy."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_block = tl.make_block_ptr(
        base=dy_ptr + row * stride_dy,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    y_block = tl.make_block_ptr(
        base=y_ptr + row * stride_y,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )
    dx_block = tl.make_block_ptr(
        base=dx_ptr + row * stride_dx,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )

    # y^T dy, which is one number
    s = 0.0
    dy_at = dy_block
    y_at = y_block
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_at, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_at, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
        dy_at = tl.advance(dy_at, (BLOCK,))
        y_at = tl.advance(y_at, (BLOCK,))

    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        diagonal = y * dy
        outer = y * y * s
        tl.store(dx_block, (diagonal - outer).to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_block = tl.advance(dy_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))
        dx_block = tl.advance(dx_block, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(BLOCK_FORWARD, triton.next_power_of_2(n_cols))
    grid = (cdiv(n_rows, 1),)
    online_softmax_kernel[grid](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block = min(BLOCK_BACKWARD, triton.next_power_of_2(n_cols))
    grid = (n_rows,)
    softmax_backward_kernel[grid](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
