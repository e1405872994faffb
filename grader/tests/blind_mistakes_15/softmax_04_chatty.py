# labs/lab4_production_slice/softmax.py | wrong everywhere | gradient_kernel divides the sum of y * dy by N_COLS and subtracts this mean from dy. The gradient of softmax needs the sum itself: products must not be divided.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


# ---------------------------------------------------------------------------------------------------------
# forward
# ---------------------------------------------------------------------------------------------------------


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    # which row is mine?
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    # top: maximum so far, from the lowest number of fp32. total: sum so far, relative to top.
    top = -3.4028234663852886e38
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        # fp32 already, and -inf past the end
        x = load(x_row, cols, N_COLS, other=-float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        # old sum to the new scale ...
        total = total * tl.exp(top - higher)
        # ... plus what this block adds
        total = total + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    # once more over the row, with both numbers final
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, other=-float("inf"))
        y = tl.exp(x - top) / total
        store(y_row, cols, N_COLS, y)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    # one program for each row
    grid = (n_rows,)
    on(softmax_kernel, x)[grid](
        x,
        out,
        x.stride(0),
        out.stride(0),
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


# ---------------------------------------------------------------------------------------------------------
# backward
# ---------------------------------------------------------------------------------------------------------


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    # first loop: y * dy over the whole row
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        products += tl.sum(y * dy, axis=0)
    products = products / N_COLS
    # second loop: the gradient
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        dx = y * (dy - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    grid = (n_rows,)
    # each tensor has a row stride of its own
    on(gradient_kernel, dy)[grid](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    return out


# ---------------------------------------------------------------------------------------------------------
# operators and autograd
# ---------------------------------------------------------------------------------------------------------


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = forward_op(x)
        # y is all that the gradient needs
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        # the columns of dy may lie apart
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
