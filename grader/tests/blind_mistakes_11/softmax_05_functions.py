# labs/lab4_production_slice/softmax.py | error | the kernel reads the global LOWEST, which is a plain float; on a GPU a kernel may only read globals that are tl.constexpr, so Triton does not compile it; must be tl.constexpr(-3.4028234663852886e38). Shows in every launch of softmax_kernel on a GPU; the interpreter reads it, and the numbers are right.
"""Softmax from two small device functions."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = -3.4028234663852886e38


@triton.jit
def merge(top, total, x):
    """Maximum and sum with one more block of the row."""
    higher = tl.maximum(top, tl.max(x, axis=0))
    return higher, total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)


@triton.jit
def dot_of_rows(p_row, q_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum of p * q over two rows."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.sum(load(p_row, cols, N_COLS) * load(q_row, cols, N_COLS), axis=0)
    return total


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = LOWEST
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf"))
        top, total = merge(top, total, x)
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
    products = dot_of_rows(dy_row, y_row, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        difference = load(dy_row, cols, N_COLS) - products
        store(dx_ptr + row * stride_dx, cols, N_COLS, load(y_row, cols, N_COLS) * difference)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
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
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return backward_op(dy.contiguous(), ctx.saved_tensors[0])


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
