# labs/lab4_production_slice/softmax.py | wrong everywhere | The constant `LOG2E = tl.constexpr(0.6931471805599453)`, used in `power`, is ln 2 and not log2(e); it should be 1.4426950408889634. Every forward result is a softmax of 0.48 * x: rows sum to 1 but the values are wrong in all cases but rows of one column and rows whose differences are so large that exp is 0 or 1. `fused_softmax_backward` by itself is right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
MINUS_INF = tl.constexpr(float("-inf"))
LOG2E = tl.constexpr(0.6931471805599453)  # e ** d is 2 ** (d * LOG2E); the hardware has powers of two only


@triton.jit
def power(difference):
    """e to the power of each difference, none of which is above 0."""
    return tl.exp2(difference * LOG2E)


@triton.jit
def with_block(top, total, x):
    """Maximum and sum of a row, with one more block."""
    higher = tl.maximum(top, tl.max(x, axis=0))
    total = total * power(top - higher) + tl.sum(power(x - higher), axis=0)
    return higher, total


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    top = tl.full((), LOWEST, dtype=tl.float32)
    total = tl.full((), 0.0, dtype=tl.float32)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS, MINUS_INF)
        top, total = with_block(top, total, x)
        store(y_row, lanes, N_COLS, power(x - top) / total)
    else:
        for start in range(0, N_COLS, BLOCK):
            top, total = with_block(top, total, load(x_row, start + lanes, N_COLS, MINUS_INF))
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, MINUS_INF)
            store(y_row, start + lanes, N_COLS, power(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
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
    lanes = tl.arange(0, BLOCK)
    products = tl.full((), 0.0, dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=block_of(n_cols))
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
