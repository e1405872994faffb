# labs/lab4_production_slice/softmax.py | contract | `fused_softmax_backward` allocates with `dy.new_empty_strided(dy.shape, dy.stride())`; without `out` the result has to be a new contiguous tensor, `dy.new_empty(dy.shape)`. Where rows of dy lie apart and no `out` is given, the numbers are right, but the result has gaps between its rows.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, WIDEST, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
TILE = 2048  # elements that a program of short rows has at least
LONG = 4096  # columns at a time of rows that are longer than WIDEST


def tile_of(n_cols):
    """Return how many rows a program takes, and how many columns at a time."""
    if n_cols > WIDEST:
        return 1, LONG
    block = block_of(n_cols)
    return max(1, TILE // block), block


@triton.jit
def load_tile(ptr, rows, cols, stride, inside, other):
    """A tile in fp32, and `other` outside of the matrix."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def short_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Softmax of ROWS rows, each of which fits one block and has a maximum of its own."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    inside = (rows < n_rows) & (cols < N_COLS)
    x = load_tile(x_ptr, rows, cols, stride_x, inside, float("-inf"))
    top = tl.maximum(tl.max(x, axis=1), LOWEST)
    shares = tl.exp(x - top[:, None])
    y = shares / tl.sum(shares, axis=1)[:, None]
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def long_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of one row. Each lane has a maximum and a sum of its own, and they are joined at the end."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, float("-inf"))
        higher = tl.maximum(tops, x)
        totals = totals * tl.exp(tops - higher) + tl.exp(x - higher)
        tops = higher
    top = tl.max(tops, axis=0)
    total = tl.sum(totals * tl.exp(tops - top), axis=0)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, float("-inf"))
        store(y_row, start + lanes, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    n_rows, n_cols = x.shape
    out = x.new_empty((n_rows, n_cols)) if out is None else out
    together, block = tile_of(n_cols)
    strides = x.stride(0), out.stride(0)
    if n_cols > WIDEST:
        on(long_kernel, x)[(n_rows,)](x, out, *strides, N_COLS=n_cols, BLOCK=block)
    else:
        launch = on(short_kernel, x)[(triton.cdiv(n_rows, together),)]
        launch(x, out, n_rows, *strides, N_COLS=n_cols, ROWS=together, BLOCK=block)
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
    """dx = y * (dy - sum(y * dy)) of ROWS rows; tiles are added up, and reduced once."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    products = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        dy = load_tile(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        products += dy * load_tile(y_ptr, rows, cols, stride_y, inside, 0.0)
    of_row = tl.sum(products, axis=1)[:, None]
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        dy = load_tile(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        dx = load_tile(y_ptr, rows, cols, stride_y, inside, 0.0) * (dy - of_row)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    n_rows, n_cols = dy.shape
    out = dy.new_empty_strided(dy.shape, dy.stride()) if out is None else out
    together, block = tile_of(n_cols)
    strides = dy.stride(0), y.stride(0), out.stride(0)
    launch = on(gradient_kernel, dy)[(triton.cdiv(n_rows, together),)]
    launch(dy, y, out, n_rows, *strides, N_COLS=n_cols, ROWS=together, BLOCK=block)
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
        return backward_op(dy.contiguous(), *ctx.saved_tensors)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
