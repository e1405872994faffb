# labs/lab4_production_slice/softmax.py | right | Nothing is wrong. Unusual: each lane has its own running maximum and sum (online softmax by lane, begun from the first block as maximum `max(x, LOWEST)` and sum 1 or 0), joined once behind the loop; exp2 with log2(e) multiplied after the subtraction; blocks of at most 4096; the gradient's first loop goes over the blocks backwards.
"""Softmax over rows of any length, in which each lane has a maximum and a sum of its own."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)
LANES = 4096  # at most; what they carry stays in registers with four warps, too


@triton.jit
def power(difference):
    """exp of a difference, which is at most 0; the factor comes behind the subtraction."""
    return tl.exp2(difference * LOG2E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    Lane j sees columns j, j + BLOCK and so on. Its first one is its maximum, with a sum of 1; where it is
    -inf, or behind the end of the row, the maximum is LOWEST and the sum 0.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    x = load(x_row, lanes, N_COLS, -float("inf"))
    tops = tl.maximum(x, LOWEST)
    sums = tl.where(x >= LOWEST, 1.0, 0.0)
    for start in range(BLOCK, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, -float("inf"))
        higher = tl.maximum(tops, x)
        sums = sums * power(tops - higher) + power(x - higher)
        tops = higher
    top = tl.max(tops, axis=0)
    share = 1.0 / tl.sum(sums * power(tops - top), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        store(y_row, cols, N_COLS, power(load(x_row, cols, N_COLS, -float("inf")) - top) * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=min(block_of(n_cols), LANES)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i, the last block first.

    The second loop goes the other way: what the first one has loaded last is still near.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, y_row, dx_row = dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = LAST - start + lanes
        products += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    common = tl.sum(products, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (load(dy_row, cols, N_COLS) - common))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), LANES),
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
