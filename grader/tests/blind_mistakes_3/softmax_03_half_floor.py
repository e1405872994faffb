# labs/lab4_production_slice/softmax.py | corner | softmax_kernel, first loop: lanes past the end load FLOOR = -65504, the lowest number of fp16, instead of -inf. Where such lanes exist (n_cols no multiple of BLOCK) a row that lies wholly below -65504 (fp32, bf16) gets FLOOR as maximum, and an fp16 row whose maximum is -65504 counts these lanes in the sum. It must be -inf.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
FLOOR = tl.constexpr(-65504.0)  # what a masked lane loads: never the maximum


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    # BEGIN TODO 1: `top` and `total`, maximum and sum of the row, by blocks as in lab 2 (about 8 lines)
    top = tl.full((), LOWEST, tl.float32)
    total = tl.full((), 0.0, tl.float32)
    n_blocks: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    for i in range(n_blocks):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        x = load(x_row, offs, N_COLS, FLOOR)
        block_top = tl.max(x, axis=0)
        if block_top > top:
            total *= tl.exp(top - block_top)
            top = block_top
        total += tl.sum(tl.exp(x - top), axis=0)
    # END TODO 1
    # BEGIN TODO 2: go over the row again: normalise and store it (about 4 lines)
    for i in range(n_blocks):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        e = tl.exp(load(x_row, offs, N_COLS) - top)
        store(y_row, offs, N_COLS, e / total)
    # END TODO 2


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 3: launch softmax_kernel, one program for each row (about 3 lines)
    kernel = on(softmax_kernel, x)
    kernel[(x.shape[0],)](
        x_ptr=x, y_ptr=out, stride_x=x.stride(0), stride_y=out.stride(0), N_COLS=x.shape[1], BLOCK=block_of(x.shape[1])
    )
    # END TODO 3
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
    # BEGIN TODO 4: `products`, the sum of y * dy over the row (about 6 lines)
    products = tl.full((), 0.0, tl.float32)
    for i in range((N_COLS + BLOCK - 1) // BLOCK):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        products += tl.sum(load(dy_row, offs, N_COLS) * load(y_row, offs, N_COLS), axis=0)
    # END TODO 4
    # BEGIN TODO 5: go over the row again: compute dx and store it (about 5 lines)
    for i in range((N_COLS + BLOCK - 1) // BLOCK):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        y = load(y_row, offs, N_COLS)
        store(dx_row, offs, N_COLS, y * load(dy_row, offs, N_COLS) - y * products)
    # END TODO 5


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    # BEGIN TODO 6: launch gradient_kernel, one program for each row (about 4 lines)
    kernel = on(gradient_kernel, dy)
    kernel[(dy.shape[0],)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=dy.shape[1], BLOCK=block_of(dy.shape[1])
    )
    # END TODO 6
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
        # BEGIN TODO 7: the result, and what the gradient needs (about 3 lines)
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y
        # END TODO 7

    @staticmethod
    def backward(ctx, dy):
        # BEGIN TODO 8: the gradient; the columns of dy may lie apart (about 2 lines)
        y, = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)
        # END TODO 8


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
