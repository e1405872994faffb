# labs/lab4_production_slice/softmax.py | two mistakes | (1) row_total, used by softmax_kernel: load(x_row, cols, N_COLS) - top has the default other=0.0, so each lane past the end of the row adds exp(0 - top) to the total; shows where the row is no multiple of BLOCK (so any length that is no power of two and no multiple of 16384), y then does not sum to 1, and is 0 in rows far below 0 (not seen where the maximum is so far above 0 that exp(-top) is lost); should be load(x_row, cols, N_COLS, other=float("-inf")). (2) FusedSoftmax.forward: ctx.save_for_backward(x) keeps the input, but backward takes it for y, so dx of fused_softmax is x * (dy - sum(x * dy)), wrong in every case (fused_softmax_backward alone is right); should be ctx.save_for_backward(y)
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def row_top(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the maximum of a row: one for each lane, and at the end the largest of these."""
    tops = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        tops = tl.maximum(tops, load(x_row, cols, N_COLS, other=float("-inf")))
    return tl.max(tops, axis=0)


@triton.jit
def row_total(x_row, top, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the sum of exp(x - top) over a row, where top is known."""
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        totals += tl.exp(load(x_row, cols, N_COLS) - top)
    return tl.sum(totals, axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Three sweeps: the maximum, the sum, the result. The maximum is final before the first subtraction, so no
    sum has to be rescaled, and a block of -inf alone needs no care: the row has a finite maximum.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = row_top(x_row, N_COLS, BLOCK)
    total = row_total(x_row, top, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(load(x_row, cols, N_COLS) - top) / total
        store(y_row, cols, N_COLS, y)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.jit
def row_product(a_row, b_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the sum of a * b over two rows."""
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += load(a_row, cols, N_COLS) * load(b_row, cols, N_COLS)
    return tl.sum(products, axis=0)


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
    inner = row_product(dy_row, y_row, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - inner)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=block_of(n_cols))
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
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
