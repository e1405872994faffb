# labs/lab4_production_slice/softmax.py | two mistakes | (1) row_dot, which the gradient kernel calls for sum(y * dy), loads the second factor at `tl.arange(0, BLOCK)` without the start of the block, so rows of more than one block (above 16384 columns) multiply with the first block of y. (2) FusedSoftmax.backward calls backward_op(y, dy) with the two arguments exchanged, so it returns dy * (y - s) instead of y * (dy - s).
"""Fused softmax. Three sweeps over a block-wise row: maximum, sum, result. (L2 keeps the row warm.)"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def row_maximum(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    best = tl.full((BLOCK,), LOWEST, tl.float32)
    for i in tl.static_range(0, (N_COLS + BLOCK - 1) // BLOCK):
        best = tl.maximum(best, load(x_row, i * BLOCK + tl.arange(0, BLOCK), N_COLS, -float("inf")))
    return tl.max(best, axis=0)


@triton.jit
def row_sum_of_exp(x_row, top, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(0, (N_COLS + BLOCK - 1) // BLOCK):
        acc += tl.exp(load(x_row, i * BLOCK + tl.arange(0, BLOCK), N_COLS, -float("inf")) - top)
    return tl.sum(acc, axis=0)


@triton.jit
def row_dot(a_row, b_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        acc += load(a_row, cols, N_COLS) * load(b_row, tl.arange(0, BLOCK), N_COLS)
    return tl.sum(acc, axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = row_maximum(x_row, N_COLS, BLOCK)
    total = row_sum_of_exp(x_row, top, N_COLS, BLOCK)
    for i in tl.static_range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        e = tl.exp(load(x_row, cols, N_COLS, -float("inf")) - top)
        store(y_row, cols, N_COLS, e / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(softmax_kernel, x)[(rows,)](x, out, x.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    products = row_dot(dy_row, y_row, N_COLS, BLOCK)
    for i in tl.static_range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        y = load(y_row, cols, N_COLS)
        dx = y * load(dy_row, cols, N_COLS) - y * products
        store(dx_ptr + row * stride_dx, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    rows, cols = y.shape
    on(gradient_kernel, y)[(rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols)
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
        y = ctx.saved_tensors[0]
        return backward_op(y, dy.contiguous())


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
