# labs/lab4_production_slice/softmax.py | right | Tiles of several short rows, or a part of a long one, of at most 4096 elements; each lane keeps a maximum and a sum of its own, and the lanes of a row are joined once behind the loop. exp2 with log2(e) after the subtraction, a factor 1 / sum, own masked loads, and the gradient in the same tiles.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)
TILE = 4096  # elements that a program holds at a time: several short rows, or a part of a long one


@triton.jit
def power(difference):
    """Return exp of a difference."""
    return tl.exp2(difference * LOG2E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; a program has ROWS rows.

    Each lane has a maximum and a sum of its own, over the columns that it meets. The lanes of a row are joined
    behind the loop, so that no block waits for a reduction.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    tops = tl.full((ROWS, BLOCK), LOWEST, tl.float32)
    totals = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        x = tl.load(x_rows + start + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(tops, x)
        totals = totals * power(tops - higher) + power(x - higher)
        tops = higher
    top = tl.max(tops, axis=1, keep_dims=True)
    share = 1.0 / tl.sum(totals * power(tops - top), axis=1, keep_dims=True)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        x = tl.load(x_rows + start + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        y = power(x - top) * share
        tl.store(y_rows + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


def tile_of(n_cols):
    """Return rows and columns of the tile that a program holds, for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // block, 32), block


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, block = tile_of(n_cols)
    launch = on(softmax_kernel, x)[(triton.cdiv(n_rows, rows),)]
    launch(x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, ROWS=rows, BLOCK=block)
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    stride_dy,
    stride_y,
    stride_dx,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)); a program computes ROWS rows of (n_rows, N_COLS) matrices of one dtype."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx
    products = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        dy = tl.load(dy_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    total = tl.sum(products, axis=1, keep_dims=True)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        dy = tl.load(dy_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_rows + start + lanes, (y * (dy - total)).to(dx_ptr.dtype.element_ty), mask=inside)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    rows, block = tile_of(n_cols)
    launch = on(gradient_kernel, dy)[(triton.cdiv(n_rows, rows),)]
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    launch(dy, y, out, n_rows, *strides, N_COLS=n_cols, ROWS=rows, BLOCK=block)
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
