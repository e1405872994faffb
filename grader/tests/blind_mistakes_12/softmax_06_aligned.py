# labs/lab4_production_slice/softmax.py | contract | without out the result has rows that lie a multiple of 64 elements apart, it must be a new contiguous tensor: wrong layout where n_cols is no multiple of 64 and there is more than one row, in both directions; the numbers are right
"""Softmax over rows of any length. Results begin each row on a multiple of 128 bytes, so that all stores are wide."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

ALIGNMENT = 64  # elements


def new_rows(like) -> torch.Tensor:
    """An empty matrix of the shape, dtype and device of `like`, with aligned rows."""
    n_rows, n_cols = like.shape
    pitch = triton.cdiv(n_cols, ALIGNMENT) * ALIGNMENT
    return torch.empty_strided((n_rows, n_cols), (pitch, 1), dtype=like.dtype, device=like.device)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    top = -float("inf")
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        finite = tl.maximum(higher, -3.0e38)  # nothing but -inf so far: any number will do
        total = total * tl.exp(top - finite) + tl.sum(tl.exp(x - finite), axis=0)
        top = higher

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
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

    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        terms += load(dy_row, cols, N_COLS) * load(y_row, cols, N_COLS)
    products = tl.sum(terms, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax of the rows of x, to out or to a new matrix."""
    if out is None:
        out = new_rows(x)
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """The gradient for x, to out or to a new matrix."""
    if out is None:
        out = new_rows(dy)
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
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
