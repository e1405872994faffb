# labs/lab4_production_slice/softmax.py | right | right
"""Softmax over rows; the second sweep goes from the last block to the first, which is still in the cache."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def join(top_a, total_a, top_b, total_b):
    """Maximum and sum of two parts of a row, each with a maximum and a sum relative to it."""
    top = tl.maximum(top_a, top_b)
    shift = tl.where(top == -float("inf"), 0.0, top)
    return top, total_a * tl.exp(top_a - shift) + total_b * tl.exp(top_b - shift)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    top = -float("inf")
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, other=-float("inf"))
        block_top = tl.max(x, axis=0)
        block_shift = tl.where(block_top == -float("inf"), 0.0, block_top)
        block_total = tl.sum(tl.exp(x - block_shift), axis=0)
        top, total = join(top, total, block_top, block_total)

    last = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = lanes + (last - back)
        x = load(x_row, cols, N_COLS, other=-float("inf"))
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
    lanes = tl.arange(0, BLOCK)

    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        parts += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
    products = tl.sum(parts, axis=0)

    last = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = lanes + (last - back)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    on(softmax_kernel, x)[(x.shape[0],)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        N_COLS=x.shape[1],
        BLOCK=block_of(x.shape[1]),
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    on(gradient_kernel, dy)[(dy.shape[0],)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        N_COLS=dy.shape[1],
        BLOCK=block_of(dy.shape[1]),
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
        return backward_op(dy.contiguous(), ctx.saved_tensors[0])


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
