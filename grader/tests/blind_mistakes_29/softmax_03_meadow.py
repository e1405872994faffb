# labs/lab4_production_slice/softmax.py | contract | The helper `piece`, with which gradient_kernel reads y and dy, loads without a mask (`tl.load(row_ptr + cols)`) and cuts by tl.where afterwards: where n_cols is no multiple of BLOCK it reads the space between rows, and past the end of the tensor behind the last row, which the README forbids ("The space between rows is neither read nor written"). The numbers are right. Shows in fused_softmax_backward and in the gradient of fused_softmax; should be mask=cols < n_cols, other=0.0.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def piece(row_ptr, cols, n_cols):
    """Columns `cols` of a row as fp32, 0 where there is no such column."""
    values = tl.load(row_ptr + cols).to(tl.float32)
    return tl.where(cols < n_cols, values, 0.0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Three sweeps over row i: its maximum, the sum of the exponentials, the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    peaks = tl.zeros((BLOCK,), dtype=tl.float32) - float("inf")
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        peaks = tl.maximum(peaks, load(x_row, cols, N_COLS, float("-inf")))
    top = tl.max(peaks, axis=0)  # finite, since the row has a finite value

    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        sums += tl.exp(load(x_row, cols, N_COLS, float("-inf")) - top)
    total = tl.sum(sums, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        store(y_row, cols, N_COLS, tl.exp(load(x_row, cols, N_COLS) - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and `out` may be any number of elements apart."""
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(softmax_kernel, x)[(rows,)](x, out, x.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols))
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

    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        sums += piece(y_row, cols, N_COLS) * piece(dy_row, cols, N_COLS)
    products = tl.sum(sums, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        difference = piece(dy_row, cols, N_COLS) - products
        store(dx_row, cols, N_COLS, piece(y_row, cols, N_COLS) * difference)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    rows, cols = dy.shape
    on(gradient_kernel, dy)[(rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols)
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
