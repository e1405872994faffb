# labs/lab4_production_slice/softmax.py | wrong everywhere | In `gradient_kernel`, `store(dx_row, cols, N_COLS, product - shared)`, with product = y * dy, lacks the factor y of the sum; it should be `product - y * shared`, that is y * (dy - shared). dx of `fused_softmax_backward` and of `fused_softmax` is wrong in all cases but those of one column; the forward pass is right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)
WIDTH = 8192
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


def width_of(n_cols):
    """Columns of a block: a whole row up to WIDTH."""
    return min(triton.next_power_of_2(n_cols), WIDTH)


@triton.jit
def power(difference):
    """exp of a difference that is not positive."""
    return tl.exp2(difference * LOG2E)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / total; program i computes row i.

    Each lane has its own maximum and its own sum in units of it. They are joined behind the loop.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, other=-float("inf"))
        higher = tl.maximum(tops, x)
        sums = sums * power(tops - higher) + power(x - higher)
        tops = higher
    top = tl.max(tops, axis=0)
    factor = 1.0 / tl.sum(sums * power(tops - top), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS, other=-float("inf"))
        store(y_row, cols, N_COLS, power(x - top) * factor)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if out is None else out
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width_of(n_cols)
    )
    return out


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient of softmax; program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        products += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    shared = tl.sum(products, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        product = load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, product - shared)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    n_rows, n_cols = y.shape
    out = torch.empty((n_rows, n_cols), device=y.device, dtype=y.dtype) if out is None else out
    on(gradient_kernel, y)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width_of(n_cols)
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
