# labs/lab4_production_slice/softmax.py | right | each lane has a maximum and a sum of its own, over its columns of all blocks (of 2048); they are merged once, behind the loop.
"""Softmax, online in each lane."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)


def _width(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), 2048)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, -float("inf"))
        higher = tl.maximum(tops, x)
        totals = totals * tl.exp(tops - higher) + tl.exp(x - higher)
        tops = higher
    # A lane that saw no finite value still has LOWEST, and the sum 0.
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * tl.exp(tops - top), axis=0)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, -float("inf"))
        store(y_row, start + lanes, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=_width(n_cols))
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
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
    products = tl.sum(sums, axis=0)
    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + lanes, N_COLS)
        dy = load(dy_row, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=_width(n_cols)
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
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward."""
    return FusedSoftmax.apply(x)
