# labs/lab4_production_slice/softmax.py | wrong everywhere | Module constant `BASE = tl.constexpr(math.log(2.0))`, used in `power` (`tl.exp2((x - top) * BASE)`), should be log2(e) = `1.0 / math.log(2.0)`. Rows still sum to 1, but the distribution is too flat (softmax of 0.48 * x). Shows in every row of more than one column whose values differ.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import math

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
BASE = tl.constexpr(math.log(2.0))  # the GPU has an instruction for powers of 2: exponents are brought to it
LANES = 4096  # columns of a block: a lane keeps a maximum and a sum of its own


@triton.jit
def power(x, top):
    """exp(x - top), as a power of 2. The difference comes first, so that large x keep their digits."""
    return tl.exp2((x - top) * BASE)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Lane l folds columns l, l + BLOCK, l + 2 BLOCK, ... online; the lanes are joined once, behind the loop.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, -float("inf"))
        higher = tl.maximum(top, x)
        total = total * power(top, higher) + power(x, higher)
        top = higher
    peak = tl.max(top, axis=0)
    share = 1.0 / tl.sum(total * power(top, peak), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, power(x, peak) * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), LANES)
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block)
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
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        products += load(dy_row, start + lanes, N_COLS) * load(y_row, start + lanes, N_COLS)
    dot = tl.sum(products, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - dot)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(block_of(n_cols), LANES)
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block
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
