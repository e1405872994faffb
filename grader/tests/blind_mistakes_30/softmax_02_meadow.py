# labs/lab4_production_slice/softmax.py | corner | softmax_kernel multiplies x by LOG2E before the maximum is subtracted (`scaled = load(...) * LOG2E`, then exp2(scaled - top)), so the rounding of a large product becomes an error of the exponent. Shows in fp32 where a row lies far from 0 while its values are close to one another (values near 16384 are off by about 0.1 %; compiled with FMA, also rows near the lowest); rows near 0 and fp16 are right. It should be exp(x - top), or exp2((x - top) * LOG2E).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)  # exp(x) = exp2(x * LOG2E), and the hardware has exp2


@triton.jit
def scaled(row_ptr, cols, N_COLS: tl.constexpr):
    """A block of a row in units of log 2; -inf past the end of the row."""
    return load(row_ptr, cols, N_COLS, float("-inf")) * LOG2E


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of one row for each program, with powers of two."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = tl.full((), LOWEST, tl.float32)
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        z = scaled(x_row, start + tl.arange(0, BLOCK), N_COLS)
        new_top = tl.maximum(top, tl.max(z, axis=0))
        total *= tl.exp2(top - new_top)
        total += tl.sum(tl.exp2(z - new_top), axis=0)
        top = new_top
    share = 1.0 / total
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        store(y_row, cols, N_COLS, tl.exp2(scaled(x_row, cols, N_COLS) - top) * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    cols = x.size(1)
    launch = on(softmax_kernel, x)[(x.size(0),)]
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
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        centred = load(dy_row, cols, N_COLS) - products
        store(dx_row, cols, N_COLS, load(y_row, cols, N_COLS) * centred)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    cols = dy.size(1)
    launch = on(gradient_kernel, dy)[(dy.size(0),)]
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
