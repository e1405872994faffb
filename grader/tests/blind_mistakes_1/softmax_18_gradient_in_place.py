# lab2/online_softmax.py | contract | softmax_backward: without out the result goes into dy itself (out = dy) instead of a new tensor, so backward of softmax() overwrites the incoming gradient; the returned numbers are right | "If out is given, write the result there. Otherwise allocate a new tensor" / "Inputs are read-only"; softmax_backward(dy, y) without out, and softmax(x).backward(g) with a contiguous g: dy / g is changed
"""Softmax, saving memory."""

import torch
import triton
import triton.language as tl

LIMIT = 8192


@triton.jit
def fwd_rows(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        xs = x_ptr + row * stride_x
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            c = start + tl.arange(0, BLOCK)
            x = tl.load(xs + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
            peak = tl.max(x, axis=0)
            if peak > m:
                d = d * tl.exp(m - peak)
                m = peak
            d += tl.sum(tl.where(x > -float("inf"), tl.exp(x - m), 0.0), axis=0)
        for start in range(0, n_cols, BLOCK):
            c = start + tl.arange(0, BLOCK)
            x = tl.load(xs + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
            tl.store(y_ptr + row * stride_y + c, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=c < n_cols)


@triton.jit
def bwd_rows(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    for row in range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            c = start + tl.arange(0, BLOCK)
            g = tl.load(dy_ptr + row * stride_dy + c, mask=c < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + c, mask=c < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(g * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            c = start + tl.arange(0, BLOCK)
            g = tl.load(dy_ptr + row * stride_dy + c, mask=c < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + c, mask=c < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_ptr + row * stride_dx + c, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=c < n_cols)


def launch_shape(n_rows: int, n_cols: int):
    return (min(n_rows, 8192),), min(LIMIT, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    grid, block = launch_shape(*x.shape)
    fwd_rows[grid](x, out, *x.shape, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = dy
    grid, block = launch_shape(*dy.shape)
    bwd_rows[grid](dy, y, out, *dy.shape, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above, tied together."""

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
