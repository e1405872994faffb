# labs/lab4_production_slice/softmax.py | two mistakes | 1: in `softmax_kernel` the line `total = total * tl.exp(top - higher) + block_total` should be `... + block_total * tl.exp(block_top - higher)`, as the sum of a block is in units of its own maximum; the forward result is wrong in rows of more than one block (above 16384 columns) where a later block has a lower maximum than the blocks before it. 2: `fused_softmax_backward` launches with `stride, y.stride(0), stride`, so dx is stored with the row stride of dy; the third should be `out.stride(0)`. It shows where `out` is given and its rows lie another number of elements apart than those of dy, with more than one row.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def block_sums(x_row, cols, n_cols):
    """The maximum of a block, at least LOWEST, and the sum of exp(x - maximum) over it."""
    x = load(x_row, cols, n_cols, float("-inf"))
    top = tl.maximum(tl.max(x, axis=0), LOWEST)
    return top, tl.sum(tl.exp(x - top), axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Each block gives a maximum and a sum of its own, and joins those of the blocks before it.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    top, total = block_sums(x_row, cols, N_COLS)
    for start in range(BLOCK, N_COLS, BLOCK):
        block_top, block_total = block_sums(x_row, start + cols, N_COLS)
        higher = tl.maximum(top, block_top)
        total = total * tl.exp(top - higher) + block_total
        top = higher
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + cols, N_COLS, float("-inf"))
        store(y_row, start + cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), to `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
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
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    cols = tl.arange(0, BLOCK)
    y = load(y_row, cols, N_COLS)
    dy = load(dy_row, cols, N_COLS)
    products = tl.sum(y * dy, axis=0)
    if N_COLS <= BLOCK:
        store(dx_row, cols, N_COLS, y * (dy - products))
    else:
        for start in range(BLOCK, N_COLS, BLOCK):
            next_y = load(y_row, start + cols, N_COLS)
            products += tl.sum(next_y * load(dy_row, start + cols, N_COLS), axis=0)
        for start in range(0, N_COLS, BLOCK):
            next_y = load(y_row, start + cols, N_COLS)
            store(dx_row, start + cols, N_COLS, next_y * (load(dy_row, start + cols, N_COLS) - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    stride = dy.stride(0)
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, stride, y.stride(0), stride, N_COLS=n_cols, BLOCK=block_of(n_cols)
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
