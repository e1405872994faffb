# lab2/online_softmax.py | corner | forward: the shift that replaces -inf by 0 is stored back as the maximum (m = m_new after m_new = where(m_new == -inf, 0, m_new)), so after a leading block of only -inf the maximum never goes below 0 again | "m itself still becomes m_new" / "a whole leading block may be -inf"; a row whose first block (512 columns) is all -inf and whose finite values are all far below 0 (below about -88): all exps vanish, 0 / 0
"""Softmax: a few programs share all rows."""

import torch
import triton
import triton.language as tl

BLOCK = 512
PROGRAMS = 2048


@triton.jit
def forward(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            m_new = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    forward[(min(n_rows, PROGRAMS),)](x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    backward[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK
    )
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
