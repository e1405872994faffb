# labs/lab4_production_slice/softmax.py | right | Tiles of several rows and at most 4096 columns; each lane has its own maximum and sum by exp2, and the lanes of a row are joined once behind the loop (totals times the power of the lane's distance from the maximum of the row). Rows past the end get the sum 1 and are not stored. The gradient uses the same tiles.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2_E = tl.constexpr(1.4426950408889634)
LANES = 4096  # columns of a tile at most: each lane has a maximum and a sum of its own
ELEMENTS = 1024  # of a tile at least: short rows are taken several at a time


def tile_of(n_cols: int):
    """Return rows and columns of the tile of a program, both powers of two."""
    lanes = min(block_of(n_cols), LANES)
    return max(ELEMENTS // lanes, 1), lanes


@triton.jit
def load_tile(ptr, rows, stride, cols, n_rows, N_COLS: tl.constexpr, other):
    """The tile at a column of rows and a row of columns, in fp32; `other` where there is nothing."""
    inside = (rows < n_rows) & (cols < N_COLS)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.jit
def store_tile(ptr, rows, stride, cols, n_rows, N_COLS: tl.constexpr, values):
    """Store a tile, rounded to the dtype of the matrix."""
    inside = (rows < n_rows) & (cols < N_COLS)
    tl.store(ptr + rows * stride + cols, values.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def power(distance):
    """exp of a distance that is at most 0."""
    return tl.exp2(distance * LOG2_E)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, ROWS: tl.constexpr, LANE: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i has ROWS rows.

    A lane sees every LANE-th column. It keeps its maximum and its sum relative to that; the lanes of a row are
    joined once, behind the loop.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, LANE)[None, :]
    tops = tl.full((ROWS, LANE), LOWEST, dtype=tl.float32)
    totals = tl.zeros((ROWS, LANE), dtype=tl.float32)
    for start in range(0, N_COLS, LANE):
        x = load_tile(x_ptr, rows, stride_x, start + lanes, n_rows, N_COLS, -float("inf"))
        higher = tl.maximum(tops, x)
        totals = totals * power(tops - higher) + power(x - higher)
        tops = higher
    top = tl.max(tops, axis=1)[:, None]
    total = tl.sum(totals * power(tops - top), axis=1)[:, None]
    # Rows past the end have a sum of 0, and are not stored.
    inverse = 1.0 / tl.where(rows < n_rows, total, 1.0)
    for start in range(0, N_COLS, LANE):
        x = load_tile(x_ptr, rows, stride_x, start + lanes, n_rows, N_COLS, -float("inf"))
        store_tile(y_ptr, rows, stride_y, start + lanes, n_rows, N_COLS, power(x - top) * inverse)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, lanes = tile_of(n_cols)
    launch = on(softmax_kernel, x)[(triton.cdiv(n_rows, rows),)]
    launch(x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, ROWS=rows, LANE=lanes)
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
    LANE: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)); program i computes ROWS rows of matrices of one dtype."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, LANE)[None, :]
    terms = tl.zeros((ROWS, LANE), dtype=tl.float32)
    for start in range(0, N_COLS, LANE):
        y = load_tile(y_ptr, rows, stride_y, start + lanes, n_rows, N_COLS, 0.0)
        terms += y * load_tile(dy_ptr, rows, stride_dy, start + lanes, n_rows, N_COLS, 0.0)
    products = tl.sum(terms, axis=1)[:, None]
    for start in range(0, N_COLS, LANE):
        y = load_tile(y_ptr, rows, stride_y, start + lanes, n_rows, N_COLS, 0.0)
        dy = load_tile(dy_ptr, rows, stride_dy, start + lanes, n_rows, N_COLS, 0.0)
        store_tile(dx_ptr, rows, stride_dx, start + lanes, n_rows, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    rows, lanes = tile_of(n_cols)
    strides = dy.stride(0), y.stride(0), out.stride(0)
    launch = on(gradient_kernel, dy)[(triton.cdiv(n_rows, rows),)]
    launch(dy, y, out, n_rows, *strides, N_COLS=n_cols, ROWS=rows, LANE=lanes)
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
