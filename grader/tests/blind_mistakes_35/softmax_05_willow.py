# labs/lab4_production_slice/softmax.py | right | right
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

A row that fits one block is loaded once and kept. In a longer one each lane has a maximum and a sum of its
own; the lanes are joined once for each row. The second sweep goes from the end of the row to its start, where
what was read last is still in the cache.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


def widths(x):
    """Return the constants of a kernel for the rows of x."""
    n_cols = x.shape[1]
    return {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS, -float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        store(y_row, lanes, N_COLS, e / tl.sum(e, axis=0))
    else:
        tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
        totals = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, -float("inf"))
            higher = tl.maximum(tops, x)
            totals = totals * tl.exp(tops - higher) + tl.exp(x - higher)
            tops = higher
        top = tl.max(tops, axis=0)
        # A lane that has seen nothing finite has LOWEST and 0, and adds 0.
        total = tl.sum(totals * tl.exp(tops - top), axis=0)
        for back in range(0, N_COLS, BLOCK):
            cols = (N_COLS - 1) // BLOCK * BLOCK - back + lanes
            x = load(x_row, cols, N_COLS, -float("inf"))
            store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    on(softmax_kernel, x)[(x.shape[0],)](x, out, x.stride(0), out.stride(0), **widths(x))
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
    if N_COLS <= BLOCK:
        y = load(y_row, lanes, N_COLS)
        dy = load(dy_row, lanes, N_COLS)
        store(dx_row, lanes, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            products += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
        share = tl.sum(products, axis=0)
        for back in range(0, N_COLS, BLOCK):
            cols = (N_COLS - 1) // BLOCK * BLOCK - back + lanes
            y = load(y_row, cols, N_COLS)
            store(dx_row, cols, N_COLS, y * (load(dy_row, cols, N_COLS) - share))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    on(gradient_kernel, dy)[(dy.shape[0],)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), **widths(dy)
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
