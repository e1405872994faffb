# labs/lab4_production_slice/softmax.py | corner | FusedSoftmax.backward copies dy only where `dy.stride(0) < dy.shape[1]`; a dy whose columns lie apart but whose row stride is at least n_cols (every second column of a wider matrix, or columns expanded from a wide one) goes to the kernel as it is, and the kernel takes its neighbours in memory; should be dy.contiguous() (or a test of stride(1)); shows only in the gradient of fused_softmax for such a dy, while contiguous, padded, transposed and fully expanded dy are right
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
    """Three sweeps over row i: its maximum, then its sum, then the result.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    peaks = tl.full((BLOCK,), LOWEST, tl.float32)
    for first in range(0, N_COLS, BLOCK):
        peaks = tl.maximum(peaks, load(x_row, first + lane, N_COLS, other=-float("inf")))
    top = tl.max(peaks, axis=0)

    mass = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        mass += tl.exp(load(x_row, first + lane, N_COLS, other=-float("inf")) - top)
    total = tl.sum(mass, axis=0)

    for first in range(0, N_COLS, BLOCK):
        x = load(x_row, first + lane, N_COLS, other=-float("inf"))
        store(y_row, first + lane, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    N = x.size(1)
    on(softmax_kernel, x)[(x.size(0),)](x, out, x.stride(0), out.stride(0), N_COLS=N, BLOCK=block_of(N))
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
    lane = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        products += load(y_row, first + lane, N_COLS) * load(dy_row, first + lane, N_COLS)
    mean = tl.sum(products, axis=0)  # of dy, weighted by y

    for first in range(0, N_COLS, BLOCK):
        away = load(dy_row, first + lane, N_COLS) - mean
        store(dx_row, first + lane, N_COLS, load(y_row, first + lane, N_COLS) * away)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    N = dy.size(1)
    on(gradient_kernel, dy)[(dy.size(0),)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=N, BLOCK=block_of(N)
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
        if dy.stride(0) < dy.shape[1]:
            dy = dy.contiguous()
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
