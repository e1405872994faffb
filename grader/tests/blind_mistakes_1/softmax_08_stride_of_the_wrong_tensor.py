# lab2/online_softmax.py | corner | softmax_backward: the launch hands dy.stride(0) over twice, also as the row stride of y (strides = dy, dy, out) | "Rows may be padded: row i starts at i * stride" / "one stride for each tensor"; softmax_backward when dy and y have different row strides and there is more than one row
"""Softmax with block pointers."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_pointer(base, n_cols, stride, BLOCK: tl.constexpr):
    start = base + tl.program_id(0).to(tl.int64) * stride
    return tl.make_block_ptr(start, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))


@triton.jit
def softmax_fwd(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    xp = row_pointer(x_ptr, n_cols, stride_x, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(xp, boundary_check=(0,)).to(tl.float32)
        x = tl.where(lanes < n_cols - start, x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        xp = tl.advance(xp, (BLOCK,))
    xp = row_pointer(x_ptr, n_cols, stride_x, BLOCK)
    yp = row_pointer(y_ptr, n_cols, stride_y, BLOCK)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(xp, boundary_check=(0,)).to(tl.float32)
        tl.store(yp, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), boundary_check=(0,))
        xp = tl.advance(xp, (BLOCK,))
        yp = tl.advance(yp, (BLOCK,))


@triton.jit
def softmax_bwd(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    gp = row_pointer(dy_ptr, n_cols, stride_dy, BLOCK)
    yp = row_pointer(y_ptr, n_cols, stride_y, BLOCK)
    s = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        g = tl.load(gp, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(yp, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += g * y
        gp = tl.advance(gp, (BLOCK,))
        yp = tl.advance(yp, (BLOCK,))
    total = tl.sum(s, axis=0)
    gp = row_pointer(dy_ptr, n_cols, stride_dy, BLOCK)
    yp = row_pointer(y_ptr, n_cols, stride_y, BLOCK)
    xp = row_pointer(dx_ptr, n_cols, stride_dx, BLOCK)
    for start in range(0, n_cols, BLOCK):
        g = tl.load(gp, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(yp, boundary_check=(0,), padding_option="zero").to(tl.float32)
        tl.store(xp, ((g - total) * y).to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        gp = tl.advance(gp, (BLOCK,))
        yp = tl.advance(yp, (BLOCK,))
        xp = tl.advance(xp, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    softmax_fwd[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=min(4096, triton.next_power_of_2(n_cols)))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    strides = [t.stride(0) for t in (dy, dy, out)]
    softmax_bwd[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=min(4096, triton.next_power_of_2(n_cols)))
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
