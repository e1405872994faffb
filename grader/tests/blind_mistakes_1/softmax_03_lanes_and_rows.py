# lab4_production_slice/softmax.py | two | (1) forward: block_at loads 0 (default `other`) past the end of the row in both statistics, so max and sum count lanes past the end as x = 0; (2) gradient_kernel: dx_row is dx_ptr + row * stride_dy instead of stride_dx | (1) y = exp(x - top) / total over the row: wrong where n_cols is not a multiple of BLOCK; (2) "each tensor has a stride of its own. The space between rows is neither read nor written": shows where dy and out have different row strides
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def block_at(row_ptr, k, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Block k of a row and its column numbers."""
    cols = k * BLOCK + tl.arange(0, BLOCK)
    return load(row_ptr, cols, N_COLS), cols


@triton.jit
def row_statistics(row_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Maximum of the row, and the sum of exp(x - maximum)."""
    biggest = LOWEST
    denominator = 0.0
    for k in range(tl.cdiv(N_COLS, BLOCK)):
        x, _ = block_at(row_ptr, k, N_COLS, BLOCK)
        before = biggest
        biggest = tl.maximum(before, tl.max(x, axis=0))
        denominator *= tl.exp(before - biggest)
        denominator += tl.sum(tl.exp(x - biggest), axis=0)
    return biggest, denominator


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    biggest, denominator = row_statistics(x_row, N_COLS, BLOCK)
    for k in range(tl.cdiv(N_COLS, BLOCK)):
        x, cols = block_at(x_row, k, N_COLS, BLOCK)
        store(y_row, cols, N_COLS, tl.exp(x - biggest) / denominator)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (n_rows,)
    on(softmax_kernel, x)[grid](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dy
    products = 0.0
    for k in range(tl.cdiv(N_COLS, BLOCK)):
        dy, cols = block_at(dy_row, k, N_COLS, BLOCK)
        y, cols = block_at(y_row, k, N_COLS, BLOCK)
        products += tl.sum(dy * y, axis=0)
    for k in range(tl.cdiv(N_COLS, BLOCK)):
        dy, cols = block_at(dy_row, k, N_COLS, BLOCK)
        y, cols = block_at(y_row, k, N_COLS, BLOCK)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    grid = (n_rows,)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[grid](dy, y, out, *strides, N_COLS=n_cols, BLOCK=block_of(n_cols))
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
