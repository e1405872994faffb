# labs/lab4_production_slice/softmax.py | wrong everywhere | `LOG2E = tl.constexpr(math.log(2.0))` is the natural logarithm of 2 (0.693), not log2(e) = 1.4427 (`1.0 / math.log(2.0)`, or `math.log2(math.e)`). `fold` and `softmax_kernel` use it in each exp2, so the kernel computes the softmax of 0.48 * x. All rows of more than one column are wrong, but for those whose numbers are all the same, or so far apart that exp gives only 0 and 1. The gradient kernel is right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import math

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(math.log(2.0))  # exp(x) is exp2(x * LOG2E), one instruction
WIDTH = 4096


@triton.jit
def fold(top_a, total_a, top_b, total_b):
    """Return maximum and sum of two parts of a row together, from those of each."""
    top = tl.maximum(top_a, top_b)
    part_a = total_a * tl.exp2((top_a - top) * LOG2E)
    part_b = total_b * tl.exp2((top_b - top) * LOG2E)
    return top, part_a + part_b


@triton.jit
def top_and_total(x_row, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return maximum and sum of one block of a row; what is -inf, or past the end, has the sum 0."""
    x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf"))
    counts = tl.where(x > LOWEST, 1.0, 0.0)
    return tl.reduce((tl.maximum(x, LOWEST), counts), 0, fold)


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

    top, total = top_and_total(x_row, 0, N_COLS, BLOCK)
    for start in range(BLOCK, N_COLS, BLOCK):
        block_top, block_total = top_and_total(x_row, start, N_COLS, BLOCK)
        top, total = fold(top, total, block_top, block_total)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp2((x - top) * LOG2E) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    width = min(block_of(n_cols), WIDTH)
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width)
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
    dx_row = dx_ptr + row * stride_dx
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (load(dy_row, cols, N_COLS) - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    width = min(block_of(n_cols), WIDTH)
    strides = dy.stride(0), y.stride(0), out.stride(0)
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=width)
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
        """Return y for x."""
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
