# labs/lab4_production_slice/softmax.py | error | gradient_kernel does not compile: `products = 0.0` is a scalar before the loop, and `products += ... * ...` in the loop makes it a block of BLOCK numbers, so Triton refuses the variable that changes its type from turn to turn. Every call of fused_softmax_backward, and the backward pass of fused_softmax, fails for a GPU, at any size (Triton's interpreter, which broadcasts, gives right numbers); fused_softmax_forward is right. Should be `products = tl.zeros((BLOCK,), dtype=tl.float32)` before the loop, or a `tl.sum` of each block in it.
"""Softmax over rows of any length, forward and backward, with powers of two in place of exp."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp_of(difference):
    """exp, for differences from the maximum."""
    return tl.exp2(difference * LOG2_E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    offsets = tl.arange(0, BLOCK)

    top = LOWEST
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + offsets, N_COLS, -float("inf"))
        before = top
        top = tl.maximum(before, tl.max(x, axis=0))
        total = total * exp_of(before - top) + tl.sum(exp_of(x - top), axis=0)

    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + offsets, N_COLS, -float("inf"))
        y = exp_of(x - top) / total
        store(y_row, start + offsets, N_COLS, y)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, into `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (n_rows,)
    on(softmax_kernel, x)[grid](x, out, x.stride(0), out.stride(0), n_cols, BLOCK=block_of(n_cols))
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
    offsets = tl.arange(0, BLOCK)

    # One reduction for the row, behind the loop.
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        dy = load(dy_row, start + offsets, N_COLS)
        y = load(y_row, start + offsets, N_COLS)
        products += y * dy
    dot = tl.sum(products, axis=0)

    for start in range(0, N_COLS, BLOCK):
        dy = load(dy_row, start + offsets, N_COLS)
        y = load(y_row, start + offsets, N_COLS)
        store(dx_row, start + offsets, N_COLS, y * (dy - dot))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, into `out` where one is given."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    grid = (n_rows,)
    on(gradient_kernel, dy)[grid](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), n_cols, BLOCK=block_of(n_cols)
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
        result = forward_op(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), result)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
