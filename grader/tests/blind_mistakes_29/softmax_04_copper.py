# labs/lab4_production_slice/softmax.py | wrong everywhere | In gradient_kernel, second loop, `y * dy - inner`: the inner product must be multiplied by y as well, y * dy - y * inner, that is y * (dy - inner). dx is wrong for every row of more than one column, in fused_softmax_backward and in the gradient of fused_softmax; the forward pass is right.
"""Softmax by powers of two, over rows of any length, with its gradient."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def e_to(z):
    """exp(z) for a difference z; the factor comes after the subtraction, where it costs no digits."""
    return tl.exp2(z * LOG2E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    within = tl.arange(0, BLOCK)
    top = tl.cast(LOWEST, tl.float32)
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + within, N_COLS, float("-inf"))
        peak = tl.maximum(top, tl.max(x, axis=0))
        total = total * e_to(top - peak) + tl.sum(e_to(x - peak), axis=0)
        top = peak
    inverse = 1.0 / total
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + within, N_COLS, float("-inf"))
        store(y_row, start + within, N_COLS, e_to(x - top) * inverse)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) with contiguous columns."""
    out = torch.empty_like(x) if out is None else out
    width = x.shape[-1]
    grid = (x.shape[0],)
    on(softmax_kernel, x)[grid](x, out, x.stride(0), out.stride(0), N_COLS=width, BLOCK=block_of(width))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient of row i, from row i of dy and of y."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    within = tl.arange(0, BLOCK)
    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        terms += load(y_row, start + within, N_COLS) * load(dy_row, start + within, N_COLS)
    inner = tl.sum(terms, axis=0)
    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + within, N_COLS)
        dy = load(dy_row, start + within, N_COLS)
        store(dx_row, start + within, N_COLS, y * dy - inner)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    width = dy.shape[-1]
    grid = (dy.shape[0],)
    on(gradient_kernel, dy)[grid](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=width, BLOCK=block_of(width)
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
        dy = dy.contiguous()
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
