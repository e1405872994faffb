# labs/lab4_production_slice/softmax.py | two mistakes | (1) softmax_kernel is launched with x.stride(0) for both strides; the second must be out.stride(0). Shows in fused_softmax_forward where the rows of x and out lie differently far apart (x padded and out not, or the other way round). (2) FusedSoftmax.backward hands dy on as it comes; must be dy.contiguous(), the kernel wants columns side by side. Shows in the gradient of fused_softmax where dy is expanded (from sum()), transposed, or every second column.
"""Softmax; the second loop goes from the last block to the first."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    top = LOWEST
    total = 0.0
    for i in range(BLOCKS):
        x = load(x_row, i * BLOCK + lanes, N_COLS, -float("inf"))
        new_top = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), axis=0)
        top = new_top
    for i in range(BLOCKS):
        cols = (BLOCKS - 1 - i) * BLOCK + lanes
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    stride = x.stride(0)
    on(softmax_kernel, x)[(n_rows,)](x, out, stride, stride, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = 0.0
    for i in range(BLOCKS):
        cols = i * BLOCK + lanes
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for i in range(BLOCKS):
        cols = (BLOCKS - 1 - i) * BLOCK + lanes
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (load(dy_row, cols, N_COLS) - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    out = torch.empty_like(y) if out is None else out
    n_rows, n_cols = y.shape
    on(gradient_kernel, y)[(n_rows,)](
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
        (y,) = ctx.saved_tensors
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward."""
    return FusedSoftmax.apply(x)
