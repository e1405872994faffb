# labs/lab4_production_slice/softmax.py | right | A row of one block in registers by a constexpr branch; longer rows in narrow blocks with a maximum and a sum for each lane, joined once by `tl.reduce` with an own combine function; exp2 with log2(e); the second sweep goes from the last block to the first.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, WIDEST, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2_E = tl.constexpr(1.4426950408889634)
NARROW = 2048  # columns of a block where a row has several: each lane keeps numbers of its own


def width_of(n_cols):
    """Return the block of a row: the whole row where it fits one, else a narrow one."""
    return block_of(n_cols) if n_cols <= WIDEST else NARROW


@triton.jit
def exp_of(difference):
    """e to the power of a difference that is not above 0."""
    return tl.exp2(difference * LOG2_E)


@triton.jit
def join(top_a, total_a, top_b, total_b):
    """Maximum and sum of two parts of a row, each with its sum in units of its own maximum."""
    top = tl.maximum(top_a, top_b)
    total = total_a * tl.exp2((top_a - top) * LOG2_E) + total_b * tl.exp2((top_b - top) * LOG2_E)
    return top, total


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    A row of one block stays in registers. In a longer one each lane has a maximum and a sum over the blocks,
    and the lanes are joined once. The second sweep goes from the last block, which is the nearest, to the first.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS, float("-inf"))
        e = exp_of(x - tl.max(x, axis=0))
        store(y_row, lanes, N_COLS, e / tl.sum(e, axis=0))
    else:
        tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
        totals = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, float("-inf"))
            higher = tl.maximum(tops, x)
            totals = totals * exp_of(tops - higher) + exp_of(x - higher)
            tops = higher
        top, total = tl.reduce((tops, totals), 0, join)
        last = (N_COLS - 1) // BLOCK * BLOCK
        for back in range(0, N_COLS, BLOCK):
            cols = last - back + lanes
            x = load(x_row, cols, N_COLS, float("-inf"))
            store(y_row, cols, N_COLS, exp_of(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    strides = x.stride(0), out.stride(0)
    on(softmax_kernel, x)[(n_rows,)](x, out, *strides, N_COLS=n_cols, BLOCK=width_of(n_cols))
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
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        y = load(y_row, lanes, N_COLS)
        dy = load(dy_row, lanes, N_COLS)
        store(dx_row, lanes, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            products += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
        product = tl.sum(products, axis=0)
        last = (N_COLS - 1) // BLOCK * BLOCK
        for back in range(0, N_COLS, BLOCK):
            cols = last - back + lanes
            store(dx_row, cols, N_COLS, load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - product))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=dy.device, dtype=dy.dtype)
    strides = dy.stride(0), y.stride(0), out.stride(0)
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=width_of(n_cols))
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
