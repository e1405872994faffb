# labs/lab4_production_slice/softmax.py | right | Long rows keep a maximum and a sum in every lane and join them once, and the second sweep goes over the blocks from the last to the first; rows of one block take a branch of their own.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

The second sweep over a long row starts where the first one ended, at the columns that were read last and are most
likely still in the cache.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
NOTHING = tl.constexpr(-float("inf"))  # what a lane past the end of the row holds


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    N_BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK

    if N_BLOCKS == 1:
        x = load(x_row, lanes, N_COLS, NOTHING)
        e = tl.exp(x - tl.max(x, axis=0))
        store(y_row, lanes, N_COLS, e / tl.sum(e, axis=0))
    else:
        # One maximum and one sum for each lane.
        tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
        totals = tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(0, N_BLOCKS):
            x = load(x_row, k * BLOCK + lanes, N_COLS, NOTHING)
            higher = tl.maximum(tops, x)
            totals = totals * tl.exp(tops - higher) + tl.exp(x - higher)
            tops = higher
        # The sums of all lanes, brought to one scale.
        top = tl.max(tops, axis=0)
        total = tl.sum(totals * tl.exp(tops - top), axis=0)
        for k in range(0, N_BLOCKS):
            cols = (N_BLOCKS - 1 - k) * BLOCK + lanes
            x = load(x_row, cols, N_COLS, NOTHING)
            store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    options = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), **options)
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
    N_BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK

    if N_BLOCKS == 1:
        dy = load(dy_row, lanes, N_COLS)
        y = load(y_row, lanes, N_COLS)
        store(dx_row, lanes, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        terms = tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(0, N_BLOCKS):
            cols = k * BLOCK + lanes
            terms += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
        products = tl.sum(terms, axis=0)
        for k in range(0, N_BLOCKS):
            cols = (N_BLOCKS - 1 - k) * BLOCK + lanes
            dy = load(dy_row, cols, N_COLS)
            y = load(y_row, cols, N_COLS)
            store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    options = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), **options
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
