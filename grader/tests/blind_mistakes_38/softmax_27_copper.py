# labs/lab4_production_slice/softmax.py | contract | gradient_kernel: `tl.load(dy_row + cols)` has no mask, in both loops, so up to BLOCK - 1 elements past the end of each row of dy are read: the space between rows, the next row, and for the last row memory behind the tensor; shows wherever the number of columns is no multiple of BLOCK; the numbers are right, as tl.where and the mask of the store drop these lanes. The README says that the space between rows is neither read nor written. It should be load(dy_row, cols, N_COLS).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """One row of softmax for each program; a row that fits a block is loaded once."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    if N_COLS <= BLOCK:
        cols = tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, float("-inf"))
        power = tl.exp(x - tl.max(x, axis=0))
        store(y_row, cols, N_COLS, power / tl.sum(power, axis=0))
    else:
        top = tl.full((), LOWEST, tl.float32)
        total = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, float("-inf"))
            before = top
            top = tl.maximum(top, tl.max(x, axis=0))
            total = total * tl.exp(before - top) + tl.sum(tl.exp(x - top), axis=0)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = load(x_row, cols, N_COLS, float("-inf"))
            store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), into `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    launch = on(softmax_kernel, x)[(rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols))
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
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load(y_row, cols, N_COLS)
        dy = tl.load(dy_row + cols).to(tl.float32)
        products += tl.sum(tl.where(cols < N_COLS, y * dy, 0.0), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load(y_row, cols, N_COLS)
        dy = tl.load(dy_row + cols).to(tl.float32)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    rows, cols = y.shape
    launch = on(gradient_kernel, y)[(rows,)]
    launch(dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols))
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
        result = forward_op(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        return backward_op(dy.contiguous(), *ctx.saved_tensors)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
