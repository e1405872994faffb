# labs/lab4_production_slice/softmax.py | right | Each lane keeps a maximum and a sum of its own over at most 4096 lanes, joined once behind the loop; exp2 with log2(e) after the subtraction, multiplication by the reciprocal of the sum, and the second sweep goes from the end of the row to its start. The gradient adds up products lane by lane and walks backwards, too.
"""Softmax over rows of any length: each lane has a maximum and a sum of its own; and the gradient."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)
MOST_LANES = 4096


def lanes_for(n_cols):
    """Return how many lanes share a row: a power of two, few enough for two numbers a lane in registers."""
    return min(triton.next_power_of_2(n_cols), MOST_LANES)


@triton.jit
def power(difference):
    """Return e to a difference that is at most 0; the difference comes first, so no digits are lost."""
    return tl.exp2(difference * LOG2E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, LANES: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Lane j follows columns j, j + LANES, j + 2 * LANES, ...; the lanes are joined once, behind the first loop.
    All maxima are finite, so no difference of two is NaN. The second loop begins at the end of the row, which
    the caches still hold.
    """
    STEPS: tl.constexpr = (N_COLS + LANES - 1) // LANES
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, LANES)
    tops = tl.full((LANES,), LOWEST, dtype=tl.float32)
    totals = tl.zeros((LANES,), dtype=tl.float32)
    for step in range(0, STEPS):
        x = load(x_row, lanes + step * LANES, N_COLS, float("-inf"))
        higher = tl.maximum(tops, x)
        totals = totals * power(tops - higher) + power(x - higher)
        tops = higher
    top = tl.max(tops, axis=0)
    share = 1.0 / tl.sum(totals * power(tops - top), axis=0)
    for step in range(0, STEPS):
        cols = lanes + (STEPS - 1 - step) * LANES
        x = load(x_row, cols, N_COLS, float("-inf"))
        store(y_row, cols, N_COLS, power(x - top) * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, LANES=lanes_for(n_cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, LANES: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    STEPS: tl.constexpr = (N_COLS + LANES - 1) // LANES
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, LANES)
    sums = tl.zeros((LANES,), dtype=tl.float32)
    for step in range(0, STEPS):
        cols = lanes + step * LANES
        sums += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    products = tl.sum(sums, axis=0)
    for step in range(0, STEPS):
        cols = lanes + (STEPS - 1 - step) * LANES
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, LANES=lanes_for(n_cols)
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
