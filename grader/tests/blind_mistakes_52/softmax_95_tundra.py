# labs/lab4_production_slice/softmax.py | right | Nothing is wrong. Unusual: each lane keeps a maximum and a sum of its own, updated by a single exp(-|x - top|) and tl.where, the first block is peeled off the loop, and the lanes are joined once behind the loop; blocks of at most 4096 columns, own configs of 4 and 8 warps.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LANES = 4096  # columns of a block: each lane keeps a maximum and a sum of its own
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


def lanes_of(n_cols):
    """Return the width of a block for rows of n_cols columns."""
    return min(block_of(n_cols), LANES)


@triton.jit
def absorb(tops, totals, x):
    """Take one more number into the maximum and the sum of each lane, by a single exp.

    Of x and the maximum so far the smaller one counts exp(-|difference|), and the larger one counts 1.
    """
    smaller = tl.exp(-tl.abs(x - tops))
    rises = x > tops
    totals = tl.where(rises, totals * smaller + 1.0, totals + smaller)
    return tl.where(rises, x, tops), totals


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Lane j has columns j, j + BLOCK, j + 2 * BLOCK and so on. The lanes are joined once, behind the loop. No
    lane begins with -inf as its maximum: the difference of -inf and -inf is NaN.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    x = load(x_row, lanes, N_COLS, float("-inf"))
    tops = tl.maximum(x, LOWEST)
    totals = tl.where(x > float("-inf"), 1.0, 0.0)
    for start in range(BLOCK, N_COLS, BLOCK):
        tops, totals = absorb(tops, totals, load(x_row, start + lanes, N_COLS, float("-inf")))
    top = tl.max(tops, axis=0)
    share = 1.0 / tl.sum(totals * tl.exp(tops - top), axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        e = tl.exp(load(x_row, cols, N_COLS, float("-inf")) - top)
        store(y_row, cols, N_COLS, e * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=lanes_of(n_cols)
    )
    return out


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
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

    of_lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        of_lanes += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    products = tl.sum(of_lanes, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        dx = load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - products)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
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
