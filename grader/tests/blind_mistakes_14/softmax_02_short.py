# labs/lab4_production_slice/softmax.py | wrong everywhere | In FusedSoftmax.backward, `backward_op(y, dy.contiguous())` passes the arguments in the wrong order, so dx is dy * (y - s); it should be backward_op(dy.contiguous(), y).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    a = tl.arange(0, BLOCK)
    top = LOWEST
    total = 0.0
    for c in range(0, N_COLS, BLOCK):
        t = load(x_row, c + a, N_COLS, -float("inf"))
        new = tl.maximum(top, tl.max(t, 0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(t - new), 0)
        top = new
    for c in range(0, N_COLS, BLOCK):
        t = load(x_row, c + a, N_COLS, -float("inf"))
        store(y_row, c + a, N_COLS, tl.exp(t - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(softmax_kernel, x)[(rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    a = tl.arange(0, BLOCK)
    products = 0.0
    for c in range(0, N_COLS, BLOCK):
        products += tl.sum(load(dy_row, c + a, N_COLS) * load(y_row, c + a, N_COLS), 0)
    for c in range(0, N_COLS, BLOCK):
        g = load(dy_row, c + a, N_COLS) - products
        store(dx_row, c + a, N_COLS, load(y_row, c + a, N_COLS) * g)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    rows, cols = dy.shape
    on(gradient_kernel, dy)[(rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols)
    )
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return backward_op(y, dy.contiguous())


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
