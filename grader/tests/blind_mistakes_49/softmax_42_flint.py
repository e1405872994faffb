# labs/lab4_production_slice/softmax.py | right | Unusual: a program has several short rows as a two-dimensional tile; pairs (maximum, sum) are folded lane by lane and then reduced by `tl.reduce` with an own combine function of two values; -inf is the pair (LOWEST, 0).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
TILE = 4096  # elements of a tile: several short rows, or a block of a long one


@triton.jit
def joined(top_a, total_a, top_b, total_b):
    """Maximum, and sum of exp(x - maximum), of two sets of numbers together. All maxima are finite."""
    top = tl.maximum(top_a, top_b)
    return top, total_a * tl.exp(top_a - top) + total_b * tl.exp(top_b - top)


@triton.jit
def fetch(ptr, rows, cols, n_rows, n_cols, stride, other):
    """A tile of a matrix in fp32, and `other` where the matrix has no such element."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.jit
def put(ptr, rows, cols, n_rows, n_cols, stride, values):
    """Store a tile of a matrix, rounded to its dtype."""
    inside = (rows < n_rows) & (cols < n_cols)
    tl.store(ptr + rows * stride + cols, values.to(ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row.

    Program i computes ROWS rows, BLOCK columns at a time. An element alone is the pair (x, 1), -inf is
    (LOWEST, 0). `joined` folds the tiles of a row into the first one, and then the lanes of a row into one.
    """
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    tops = tl.full((ROWS, BLOCK), LOWEST, tl.float32)
    totals = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        x = fetch(x_ptr, rows, cols, n_rows, N_COLS, stride_x, -float("inf"))
        ones = tl.where(x > -float("inf"), 1.0, 0.0)
        tops, totals = joined(tops, totals, tl.maximum(x, LOWEST), ones)
    top, total = tl.reduce((tops, totals), axis=1, combine_fn=joined)
    # The maximum adds 1 to the sum of its row; rows past the end have none.
    share = 1.0 / tl.maximum(total, 1.0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        x = fetch(x_ptr, rows, cols, n_rows, N_COLS, stride_x, -float("inf"))
        put(y_ptr, rows, cols, n_rows, N_COLS, stride_y, tl.exp(x - top[:, None]) * share[:, None])


def tile_of(n_cols):
    """Return the columns and the rows of a tile, powers of two."""
    block = min(block_of(n_cols), TILE)
    return block, TILE // block


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block, rows = tile_of(n_cols)
    launch = on(softmax_kernel, x)[(triton.cdiv(n_rows, rows),)]
    launch(x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, ROWS=rows)
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
    """dx = y * (dy - sum(y * dy)), ROWS rows a program."""
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    products = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        dy = fetch(dy_ptr, rows, cols, n_rows, N_COLS, stride_dy, 0.0)
        products += dy * fetch(y_ptr, rows, cols, n_rows, N_COLS, stride_y, 0.0)
    dot = tl.sum(products, axis=1)[:, None]
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        dy = fetch(dy_ptr, rows, cols, n_rows, N_COLS, stride_dy, 0.0)
        y = fetch(y_ptr, rows, cols, n_rows, N_COLS, stride_y, 0.0)
        put(dx_ptr, rows, cols, n_rows, N_COLS, stride_dx, y * (dy - dot))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block, rows = tile_of(n_cols)
    launch = on(gradient_kernel, dy)[(triton.cdiv(n_rows, rows),)]
    strides = dy.stride(0), y.stride(0), out.stride(0)
    launch(dy, y, out, n_rows, *strides, N_COLS=n_cols, BLOCK=block, ROWS=rows)
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
