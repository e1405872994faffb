# labs/lab4_production_slice/softmax.py | corner | softmax_kernel multiplies x by log2(e) before the maximum is subtracted (`load(...) * LOG2E`, then exp2(bits - top), in both loops): the product is rounded at the size of x, so the digits of the difference are lost. Shows in fp32 where values lie far from 0 and near each other (16384 + N(0, 2)); ordinary values are right. It should be exp2((x - top) * LOG2E), with the maximum of x itself.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) is exp2(x * LOG2E), and exp2 is one instruction


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of row i by program i, with powers of two."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    top = LOWEST
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        bits = load(x_row, start + lanes, N_COLS, float("-inf")) * LOG2E
        higher = tl.maximum(top, tl.max(bits, axis=0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2(bits - higher), axis=0)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        bits = load(x_row, start + lanes, N_COLS) * LOG2E
        store(y_row, start + lanes, N_COLS, tl.exp2(bits - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        parts += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    products = tl.sum(parts, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        y = load(y_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(dy, y, out, *strides, N_COLS=n_cols, BLOCK=block_of(n_cols))
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
