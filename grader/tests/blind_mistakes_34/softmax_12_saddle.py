# labs/lab4_production_slice/softmax.py | right | right
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

    Each lane has a maximum and a sum of its own, of every BLOCK-th column; they are joined behind the loop.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), LOWEST, tl.float32)
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, other=-float("inf"))
        higher = tl.maximum(tops, x)
        totals = totals * tl.exp(tops - higher) + tl.exp(x - higher)
        tops = higher
    # A lane that saw nothing but -inf has a sum of 0.
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * tl.exp(tops - top), axis=0)
    # From the end of the row to its start: what was read last is still in the cache.
    last = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = last - back + lanes
        x = load(x_row, cols, N_COLS, other=-float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def widths(x):
    """The two constants of a launch for rows as long as those of x."""
    n_cols = x.shape[1]
    return {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    on(softmax_kernel, x)[(x.shape[0],)](x, out, x.stride(0), out.stride(0), **widths(x))
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
    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        parts += load(dy_row, start + lanes, N_COLS) * load(y_row, start + lanes, N_COLS)
    products = tl.sum(parts, axis=0)
    last = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = last - back + lanes
        y = load(y_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, (dy - products) * y)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy, memory_format=torch.contiguous_format) if out is None else out
    strides = [matrix.stride(0) for matrix in (dy, y, out)]
    on(gradient_kernel, dy)[(dy.shape[0],)](dy, y, out, *strides, **widths(dy))
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
        y = ctx.saved_tensors[0]
        return backward_op(dy if dy.stride(1) == 1 else dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
