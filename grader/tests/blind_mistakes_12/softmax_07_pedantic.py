# labs/lab4_production_slice/softmax.py | right | nothing is wrong: every lane keeps its own maximum and sum, and they are joined once behind the loop; the second sweeps go from the last block to the first; the gradient is summed lane by lane, too
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

A row is cut into blocks, and lane k of the program sees column k of each block. There is no reduction in a loop.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def columns_of(index, BLOCK: tl.constexpr):
    """The column numbers of block `index`."""
    return index * BLOCK + tl.arange(0, BLOCK)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    blocks = (N_COLS + BLOCK - 1) // BLOCK

    # Lanes start at the lowest finite number of fp32. A lane that meets nothing but -inf stays there, with sum 0.
    tops = tl.full((BLOCK,), -3.4028234663852886e38, dtype=tl.float32)
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(0, blocks):
        x = load(x_row, columns_of(index, BLOCK), N_COLS, -float("inf"))
        higher = tl.maximum(tops, x)
        totals = totals * tl.exp(tops - higher) + tl.exp(x - higher)
        tops = higher

    # The lanes have scales of their own: bring all to that of the row.
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * tl.exp(tops - top), axis=0)

    # Backwards, since the last block is the most likely one to be in the cache.
    for turn in range(0, blocks):
        cols = columns_of(blocks - 1 - turn, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=min(block_of(n_cols), 4096))
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
    blocks = (N_COLS + BLOCK - 1) // BLOCK

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(0, blocks):
        cols = columns_of(index, BLOCK)
        products += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    projection = tl.sum(products, axis=0)

    for turn in range(0, blocks):
        cols = columns_of(blocks - 1 - turn, BLOCK)
        excess = load(dy_row, cols, N_COLS) - projection
        store(dx_row, cols, N_COLS, excess * load(y_row, cols, N_COLS))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=min(block_of(n_cols), 4096))
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
