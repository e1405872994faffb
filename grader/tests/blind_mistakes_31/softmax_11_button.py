# labs/lab4_production_slice/softmax.py | wrong everywhere | softmax_kernel uses tl.exp2 of the plain difference x - top in all places, so it computes powers of 2 instead of e: rows still sum to 1, but are too flat, in every case of more than one column whose values are not extremely far apart (dx of fused_softmax follows the wrong y; fused_softmax_backward alone is right); it should be tl.exp(x - top), or tl.exp2((x - top) * 1.4426950408889634)
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

A row of one block has a path of its own, which loads it once.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The softmax of row i by program i; a program takes BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS, other=-float("inf"))
        powers = tl.exp2(x - tl.max(x, axis=0))
        store(y_row, lanes, N_COLS, powers / tl.sum(powers, axis=0))
    else:
        top = -3.4028234663852886e38  # finite, for a first block of -inf alone
        total = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, other=-float("inf"))
            higher = tl.maximum(tl.max(x, axis=0), top)
            total *= tl.exp2(top - higher)
            total += tl.sum(tl.exp2(x - higher), axis=0)
            top = higher
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            x = load(x_row, cols, N_COLS, other=-float("inf"))
            store(y_row, cols, N_COLS, tl.exp2(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    y = torch.empty_like(x) if out is None else out
    rows, columns = x.shape
    on(softmax_kernel, x)[(rows,)](
        x, y, x.stride(0), y.stride(0), N_COLS=columns, BLOCK=block_of(columns)
    )
    return y


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
        products = 0.0
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            y = load(y_row, cols, N_COLS)
            store(dx_row, cols, N_COLS, y * (load(dy_row, cols, N_COLS) - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    dx = torch.empty_like(dy) if out is None else out
    rows, columns = dy.shape
    on(gradient_kernel, dy)[(rows,)](
        dy, y, dx, dy.stride(0), y.stride(0), dx.stride(0), N_COLS=columns, BLOCK=block_of(columns)
    )
    return dx


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
        result = forward_op(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        return backward_op(dy.contiguous(), *ctx.saved_tensors)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
