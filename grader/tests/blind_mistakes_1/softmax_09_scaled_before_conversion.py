# lab2/online_softmax.py | corner | fwd_kernel: x is multiplied by LOG2E before it is converted, (tl.load(...) * LOG2E).to(tl.float32), so in fp16 and bf16 the product is rounded to 11 or 8 bits (and overflows in fp16 above 45400); both sweeps do the same, rows still sum to 1 | "Convert directly after each load, .to(tl.float32), do everything in fp32" / "compute in fp32, round once"; softmax_forward and softmax in fp16 and bf16, the more the larger the values; fp32 is right for values of ordinary size
"""Softmax: short rows in one block, long rows in several."""

import torch
import triton
import triton.language as tl

WIDEST = 2048
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def fwd_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    if WHOLE:
        x = (tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")) * LOG2E).to(tl.float32)
        e = tl.exp2(x - tl.max(x, axis=0))
        tl.store(y_ptr + offs, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=offs < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = (tl.load(x_ptr + start + offs, mask=start + offs < n_cols, other=-float("inf")) * LOG2E).to(tl.float32)
            old = m
            m = tl.maximum(m, tl.max(x, axis=0))
            ref = tl.where(m == -float("inf"), 0.0, m)
            d = d * tl.exp2(old - ref) + tl.sum(tl.exp2(x - ref), axis=0)
        for start in range(0, n_cols, BLOCK):
            x = (tl.load(x_ptr + start + offs, mask=start + offs < n_cols, other=-float("inf")) * LOG2E).to(tl.float32)
            y = tl.exp2(x - m) / d
            tl.store(y_ptr + start + offs, y.to(y_ptr.dtype.element_ty), mask=start + offs < n_cols)


@triton.jit
def bwd_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_ptr + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
        acc += y * dy
    s = tl.sum(acc, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_ptr + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + offs, mask=start + offs < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + start + offs, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=start + offs < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = triton.next_power_of_2(n_cols)
    fwd_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=min(width, WIDEST), WHOLE=width <= WIDEST, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width = triton.next_power_of_2(n_cols)
    bwd_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=min(width, WIDEST), num_warps=8
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
