# labs/lab4_production_slice/softmax.py | right | Each lane has a maximum and a sum of its own over columns j, j + LANES, ..., joined once behind the loop; blocks of at most 4096 columns, exp2 with log2(e) after the maximum is subtracted, no autotuner, sums of the gradient by lanes.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


def lanes_of(n_cols: int):
    """Return the columns that a program takes at a time, and its warps: at most 16 columns a thread."""
    lanes = min(triton.next_power_of_2(n_cols), 4096)
    return lanes, max(4, lanes // 512)


@triton.jit
def power(x):
    """e to the power of x, by the exponential that the GPU has."""
    return tl.exp2(x * LOG2E)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, LANES: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Lane j has columns j, j + LANES, ... with a maximum and a sum of its own; they are joined behind the loop.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, LANES)
    tops = tl.full((LANES,), LOWEST, dtype=tl.float32)
    totals = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, N_COLS, LANES):
        x = load(x_row, start + lanes, N_COLS, float("-inf"))
        # Never below LOWEST, so no difference is that of two infinities.
        higher = tl.maximum(tops, x)
        totals = totals * power(tops - higher) + power(x - higher)
        tops = higher
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * power(tops - top), axis=0)
    for start in range(0, N_COLS, LANES):
        cols = start + lanes
        x = load(x_row, cols, N_COLS, float("-inf"))
        store(y_row, cols, N_COLS, power(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    lanes, warps = lanes_of(n_cols)
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, LANES=lanes, num_warps=warps
    )
    return out


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, LANES: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, LANES)
    products = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, N_COLS, LANES):
        cols = start + lanes
        products += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    product = tl.sum(products, axis=0)
    for start in range(0, N_COLS, LANES):
        cols = start + lanes
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - product)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    lanes, warps = lanes_of(n_cols)
    strides = dy.stride(0), y.stride(0), out.stride(0)
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, LANES=lanes, num_warps=warps)
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
