# labs/lab4_production_slice/softmax.py | right | Unusual: each of at most 2048 lanes has a maximum and a sum of its own over the blocks of the row, and they are joined once by `tl.reduce` with an own combine function on pairs; exp2 with log2(e), after the maximum is subtracted. Long rows are read a second time in blocks of 2048 columns.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

LANES = 2048  # at most, each with a maximum and a sum of its own
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
MINUS_INF = tl.constexpr(float("-inf"))
LOG2E = tl.constexpr(1.4426950408889634)


def lanes_of(n_cols):
    """Return how many lanes a row of n_cols columns gets: a power of two."""
    return min(triton.next_power_of_2(n_cols), LANES)


@triton.jit
def power(difference):
    """e to the power of a difference from a maximum."""
    return tl.exp2(difference * LOG2E)


@triton.jit
def joined(top_a, total_a, top_b, total_b):
    """Maximum and sum of two sets of columns from those of each."""
    top = tl.maximum(top_a, top_b)
    return top, total_a * power(top_a - top) + total_b * power(top_b - top)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Lane j has columns j, j + BLOCK, j + 2 * BLOCK and so on. The lanes are joined once, behind the loop.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, MINUS_INF)
        higher = tl.maximum(tops, x)
        totals = totals * power(tops - higher) + power(x - higher)
        tops = higher
    top, total = tl.reduce((tops, totals), 0, joined)
    share = 1.0 / total
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, MINUS_INF)
        store(y_row, start + lanes, N_COLS, power(x - top) * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=lanes_of(n_cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i, and its lanes add up products as above."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        products += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
    mean_dy = tl.sum(products, axis=0)  # with the weights y, which sum to 1
    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + lanes, N_COLS)
        dy = load(dy_row, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, y * (dy - mean_dy))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=lanes_of(n_cols)
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
