# labs/lab4_production_slice/softmax.py | two mistakes | (1) softmax_kernel, first loop: total is multiplied by exp(top - higher) after top was set to higher, so by 1: rows of more than one block are wrong; the factor must use the old top. (2) gradient_kernel, second loop: dx is stored at row * stride_y where it must be row * stride_dx: wrong where out and y have other row strides.
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
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = tl.full((), LOWEST, dtype=tl.float32)
    total = tl.zeros((), dtype=tl.float32)
    for begin in range(0, N_COLS, BLOCK):
        x = load(x_row, begin + tl.arange(0, BLOCK), N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        top = higher
        total = total * tl.exp(top - higher)
        total += tl.sum(tl.exp(x - top), axis=0)
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (n_rows,)
    on(softmax_kernel, x)[grid](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    products = tl.zeros((), dtype=tl.float32)
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        products += tl.sum(dy * y, axis=0)
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        store(dx_ptr + row * stride_y, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    grid = (n_rows,)
    on(gradient_kernel, dy)[grid](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
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
        dy = dy.contiguous()
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
