# labs/lab4_production_slice/softmax.py | wrong everywhere | In `gradient_kernel` the line `products = tl.sum(lanes, axis=0) / N_COLS` takes the mean of y * dy, as the norms do; it should be the sum, `tl.sum(lanes, axis=0)`. dx of fused_softmax_backward and of fused_softmax is wrong for all rows of more than one column; y is right.
"""Softmax over rows of any length in powers of two, its gradient, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(difference):
    """exp of a difference that is at most 0."""
    return tl.exp2(difference * LOG2E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = tl.full((), LOWEST, dtype=tl.float32)
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * power(top - higher) + tl.sum(power(x - higher), axis=0)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, power(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient of row i by program i.

    Each lane adds up its own products, and the lanes are joined once, behind the loop.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        lanes += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    products = tl.sum(lanes, axis=0) / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load(y_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
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
