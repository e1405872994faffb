# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | The launch in softmax_backward passes y, dy where the kernel has dy_ptr, y_ptr (and the strides alike), so it computes dy * (y - s). The order must be dy, y.
"""Online softmax, persistent: a fixed number of programs, each of which takes every P-th row."""

import torch
import triton
import triton.language as tl

PROGRAMS = 48
BLOCK = 1024


@triton.jit
def _softmax(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    step = tl.num_programs(0)
    for r in range(tl.program_id(0), n_rows, step):
        row = tl.cast(r, tl.int64)
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = offs < n_cols - start
            x = tl.load(x_ptr + row * stride_x + start + offs, mask=inside, other=-float("inf")).to(tl.float32)
            hi = tl.maximum(tl.max(x, 0), m)
            ref = tl.where(hi == -float("inf"), 0.0, hi)
            d = d * tl.exp(m - ref) + tl.sum(tl.exp(x - ref), 0)
            m = hi
        for start in range(0, n_cols, BLOCK):
            inside = offs < n_cols - start
            x = tl.load(x_ptr + row * stride_x + start + offs, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_ptr + row * stride_y + start + offs, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _softmax_grad(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    step = tl.num_programs(0)
    for r in range(tl.program_id(0), n_rows, step):
        row = tl.cast(r, tl.int64)
        dot = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = offs < n_cols - start
            g = tl.load(dy_ptr + row * stride_dy + start + offs, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + start + offs, mask=inside, other=0.0).to(tl.float32)
            dot += tl.sum(g * y, 0)
        for start in range(0, n_cols, BLOCK):
            inside = offs < n_cols - start
            g = tl.load(dy_ptr + row * stride_dy + start + offs, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + start + offs, mask=inside, other=0.0).to(tl.float32)
            dx = y * (g - dot)
            tl.store(dx_ptr + row * stride_dx + start + offs, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (min(n_rows, PROGRAMS),)
    _softmax[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=4)
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    grid = (min(n_rows, PROGRAMS),)
    _softmax_grad[grid](
        y, dy, out, n_rows, n_cols, y.stride(0), dy.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=4
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(True)
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x):
    return OnlineSoftmax.apply(x)
