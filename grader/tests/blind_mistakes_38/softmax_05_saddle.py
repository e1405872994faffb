# labs/lab4_production_slice/softmax.py | error | softmax_kernel takes (x_ptr, x_step, y_ptr, y_step), but fused_softmax_forward launches it with (x, out, x.stride(0), out.stride(0)): x_step gets the tensor `out` and y_ptr gets a number. The kernel does not compile, at `x_ptr + row * x_step`, a product of an integer and a pointer. It should be launched with (x, x.stride(0), out, out.stride(0)). Shows in every call of fused_softmax_forward and fused_softmax; fused_softmax_backward is right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, x_step, y_ptr, y_step, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Program i writes the softmax of row i of x to row i of y; a step leads from one row to the next."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * x_step
    y_row = y_ptr + row * y_step

    top = tl.full((), LOWEST, dtype=tl.float32)
    total = 0.0
    for first in range(0, N_COLS, BLOCK):
        x = load(x_row, first + tl.arange(0, BLOCK), N_COLS, -float("inf"))
        before = top
        top = tl.maximum(before, tl.max(x, axis=0))
        total = total * tl.exp(before - top) + tl.sum(tl.exp(x - top), axis=0)

    share = 1.0 / total
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(softmax_kernel, x)[(rows,)](x, out, x.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, dy_step, y_step, dx_step, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * dy_step
    y_row = y_ptr + row * y_step
    dx_row = dx_ptr + row * dx_step

    products = 0.0
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)

    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    rows, cols = y.shape
    steps = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[(rows,)](dy, y, out, *steps, N_COLS=cols, BLOCK=block_of(cols))
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
