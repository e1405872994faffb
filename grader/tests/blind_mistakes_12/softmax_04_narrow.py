# labs/lab4_production_slice/softmax.py | two mistakes | (1) forward: the second loop uses the columns of the first block in every turn, it must add start: rows longer than a block (2048) stay unwritten behind it; (2) gradient: in the first loop dy is loaded from y_row, it must be dy_row: products is the sum of y * y
"""Softmax with blocks of 2048 columns: 16 registers for each thread of 4 warps."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

NARROW = 2048


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)

    top = -3.4028234663852886e38
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + cols, N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total *= tl.exp(top - higher)
        total += tl.sum(tl.exp(x - higher), axis=0)
        top = higher

    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    cols = tl.arange(0, BLOCK)

    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + cols, N_COLS)
        dy = load(y_row, start + cols, N_COLS)
        products += tl.sum(y * dy, axis=0)

    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + cols, N_COLS)
        dy = load(dy_row, start + cols, N_COLS)
        store(dx_row, start + cols, N_COLS, y * (dy - products))


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), NARROW)
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block)
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(block_of(n_cols), NARROW)
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block
    )
    return out


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
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
