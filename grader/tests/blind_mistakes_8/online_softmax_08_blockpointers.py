# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | The block pointer x_blk is not made again before the second loop of softmax_fwd, so that sweep goes on behind the end of the row and loads only padding zeros (y = exp(0 - m) / d); it must start at column 0 again.
"""Softmax and its gradient with block pointers."""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 1024


@triton.jit
def softmax_fwd(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_base = x_ptr + row * stride_x
    y_base = y_ptr + row * stride_y
    x_blk = tl.make_block_ptr(x_base, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_blk, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x = tl.where(start + tl.arange(0, BLOCK) < n_cols, x, -float("inf"))
        m_next = tl.maximum(m, tl.max(x, 0))
        shift = tl.where(m_next == -float("inf"), 0.0, m_next)
        d = d * tl.exp(m - shift)
        d += tl.sum(tl.exp(x - shift), 0)
        m = m_next
        x_blk = tl.advance(x_blk, (BLOCK,))
    y_blk = tl.make_block_ptr(y_base, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_blk, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_blk, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_blk = tl.advance(x_blk, (BLOCK,))
        y_blk = tl.advance(y_blk, (BLOCK,))


@triton.jit
def softmax_bwd(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_blk = tl.make_block_ptr(dy_ptr + row * stride_dy, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    y_blk = tl.make_block_ptr(y_ptr + row * stride_y, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    dx_blk = tl.make_block_ptr(dx_ptr + row * stride_dx, (n_cols,), (1,), (0,), (BLOCK,), (0,))
    s = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(tl.advance(dy_blk, (start,)), boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(tl.advance(y_blk, (start,)), boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += dy * y
    total = tl.sum(s, 0)
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(tl.advance(dy_blk, (start,)), boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(tl.advance(y_blk, (start,)), boundary_check=(0,), padding_option="zero").to(tl.float32)
        dx = (dy - total) * y
        tl.store(tl.advance(dx_blk, (start,)), dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over rows."""
    if out is None:
        out = torch.empty_like(x)
    M, N = x.shape
    BLOCK = min(BLOCK_MAX, triton.next_power_of_2(N))
    softmax_fwd[(M,)](x, out, N, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Its gradient."""
    if out is None:
        out = torch.empty_like(dy)
    M, N = dy.shape
    BLOCK = min(BLOCK_MAX, triton.next_power_of_2(N))
    softmax_bwd[(M,)](dy, y, out, N, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK)
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
