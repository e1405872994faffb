# lab2/online_softmax.py | corner | softmax_rows: in the separate treatment of the tail block d is not rescaled by exp(m - m_new) before the sum of the tail is added, the full blocks do rescale | "d_new = d * exp(m - m_new) + sum of exp(x - m_new)"; rows longer than 256 whose length is no multiple of 256 and whose maximum lies in the last, partial block: rows sum to less than 1
"""Softmax: full blocks without a mask, one tail block with a mask."""

import torch
import triton
import triton.language as tl

BLOCK = 256


@triton.jit
def finite(v):
    return tl.where(v == -float("inf"), 0.0, v)


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    xs = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    ys = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    n_full = n_cols // BLOCK
    tail = tl.arange(0, BLOCK) < n_cols - n_full * BLOCK
    m = -float("inf")
    d = 0.0
    for k in range(0, n_full):
        x = tl.load(xs + k * BLOCK).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - finite(m_new)) + tl.sum(tl.exp(x - finite(m_new)), axis=0)
        m = m_new
    last = tl.load(xs + n_full * BLOCK, mask=tail, other=-float("inf")).to(tl.float32)
    m = tl.maximum(m, tl.max(last, axis=0))
    last = tl.exp(last - m)
    d += tl.sum(last, axis=0)
    for k in range(0, n_full):
        x = tl.load(xs + k * BLOCK).to(tl.float32)
        tl.store(ys + k * BLOCK, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty))
    tl.store(ys + n_full * BLOCK, (last / d).to(y_ptr.dtype.element_ty), mask=tail)


@triton.jit
def softmax_rows_grad(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    s = 0.0
    for k in range(0, n_cols, BLOCK):
        dy = tl.load(dy_ptr + row * stride_dy + k + lane, mask=k + lane < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + k + lane, mask=k + lane < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for k in range(0, n_cols, BLOCK):
        dy = tl.load(dy_ptr + row * stride_dy + k + lane, mask=k + lane < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + k + lane, mask=k + lane < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + k + lane, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=k + lane < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_rows_grad[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK)
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
