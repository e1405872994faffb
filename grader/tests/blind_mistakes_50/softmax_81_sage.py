# labs/lab4_production_slice/softmax.py | right | Two-dimensional tiles: a program has several short rows, each with its own maximum and sum kept as a column (keep_dims), and one row where rows are long; exp2 with log2(e) after the maximum was subtracted.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2_E = tl.constexpr(1.4426950408889634)
ELEMENTS = 2048  # of a tile, where the rows are so short that a program has several


def height_of(block):
    """Return how many rows of one block each a program has."""
    return max(1, ELEMENTS // block)


@triton.jit
def take(ptr, lines, cols, inside, other):
    """Return a tile in fp32; `lines` are the offsets of its rows."""
    return tl.load(ptr + lines + cols, mask=inside, other=other).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)); program i computes ROWS rows, each with its own maximum and sum."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    exists = rows < n_rows
    top = tl.full((ROWS, 1), LOWEST, dtype=tl.float32)
    total = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = take(x_ptr, rows * stride_x, cols, exists & (cols < N_COLS), -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        powers = tl.exp2((x - higher) * LOG2_E)
        total = total * tl.exp2((top - higher) * LOG2_E) + tl.sum(powers, axis=1, keep_dims=True)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = exists & (cols < N_COLS)
        x = take(x_ptr, rows * stride_x, cols, inside, -float("inf"))
        y = tl.exp2((x - top) * LOG2_E) / total
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    height = height_of(block)
    on(softmax_kernel, x)[(triton.cdiv(n_rows, height),)](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, ROWS=height
    )
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
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)); program i computes ROWS rows of matrices of one dtype."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    exists = rows < n_rows
    products = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = exists & (cols < N_COLS)
        y = take(y_ptr, rows * stride_y, cols, inside, 0.0)
        dy = take(dy_ptr, rows * stride_dy, cols, inside, 0.0)
        products += tl.sum(y * dy, axis=1, keep_dims=True)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = exists & (cols < N_COLS)
        y = take(y_ptr, rows * stride_y, cols, inside, 0.0)
        dy = take(dy_ptr, rows * stride_dy, cols, inside, 0.0)
        dx = y * (dy - products)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = block_of(n_cols)
    height = height_of(block)
    on(gradient_kernel, dy)[(triton.cdiv(n_rows, height),)](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, ROWS=height
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
