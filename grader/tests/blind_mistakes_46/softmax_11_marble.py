# labs/lab4_production_slice/softmax.py | error | `width_of` returns `triton.cdiv(n_cols, parts * LINE) * LINE` for rows longer than 16384, which is often no power of two (9216 for 16385, 10240 for 20011, 12288 for 24576, 14336 for 40000): `tl.arange(0, BLOCK)` in `scores` does not compile (arange's range must be a power of 2). The width should be a power of two, as `block_of` gives. Shows in `fused_softmax_forward` and `fused_softmax` for most rows longer than 16384; 131072 columns give 16384 and are right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, WIDEST, block_of, load, on, store
from torch.library import triton_op

LINE = 1024  # columns: longer rows are cut into blocks of whole lines
NARROW = 8192  # columns of a block of the gradient, which holds two rows


def width_of(n_cols: int) -> int:
    """Return the width of a block: the whole row where it fits, else equal parts of it, so few lanes idle."""
    if n_cols <= WIDEST:
        return triton.next_power_of_2(n_cols)
    parts = triton.cdiv(n_cols, WIDEST)
    return triton.cdiv(n_cols, parts * LINE) * LINE


@triton.jit
def larger(a, b):
    """What tl.reduce does with two values to find a maximum."""
    return tl.maximum(a, b)


@triton.jit
def scores(x_row, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """A block of a row from column `start` on, -inf past its end."""
    return load(x_row, start + tl.arange(0, BLOCK), N_COLS, other=-float("inf"))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Three sweeps: the maximum, the sum, the result. Only the first reads a row of one block.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = tl.reduce(scores(x_row, 0, N_COLS, BLOCK), 0, larger)
    for start in range(BLOCK, N_COLS, BLOCK):
        top = larger(top, tl.reduce(scores(x_row, start, N_COLS, BLOCK), 0, larger))
    total = tl.sum(tl.exp(scores(x_row, 0, N_COLS, BLOCK) - top), axis=0)
    for start in range(BLOCK, N_COLS, BLOCK):
        total += tl.sum(tl.exp(scores(x_row, start, N_COLS, BLOCK) - top), axis=0)
    for start in range(0, N_COLS, BLOCK):
        y = tl.exp(scores(x_row, start, N_COLS, BLOCK) - top) / total
        store(y_row, start + tl.arange(0, BLOCK), N_COLS, y)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width_of(n_cols))
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
    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        terms += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    products = tl.sum(terms, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(block_of(n_cols), NARROW)
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block)
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
