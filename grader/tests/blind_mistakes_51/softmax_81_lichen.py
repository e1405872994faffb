# labs/lab4_production_slice/softmax.py | right | Tiles of several rows (up to 16 where rows are short), each lane with a maximum and a sum of its own, joined once for each row by tl.reduce with an own combine function of two values; the gradient keeps products for each lane likewise.
"""Softmax in tiles of several rows, where each lane has its own maximum and sum, and its gradient likewise."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
TILE = 2048  # elements that a program takes at a time


@triton.jit
def joined(top_a, total_a, top_b, total_b):
    """Return maximum and sum of two parts of a row, each sum being relative to its maximum."""
    top = tl.maximum(top_a, top_b)
    return top, total_a * tl.exp(top_a - top) + total_b * tl.exp(top_b - top)


@triton.jit
def tile_of(pointer, rows, cols, stride, inside, other):
    """Return a tile of a matrix in fp32, and `other` where it has no such element."""
    return tl.load(pointer + rows * stride + cols, mask=inside, other=other).to(tl.float32)


@triton.jit
def put(pointer, rows, cols, stride, inside, values):
    """Store a tile, rounded to the dtype of the matrix."""
    tl.store(pointer + rows * stride + cols, values.to(pointer.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr, HEIGHT: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)) for HEIGHT rows, BLOCK columns at a time.

    Lanes outside hold -inf: they change no maximum, and their exp is 0. The sum of a row is at least 1.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    tops = tl.full((HEIGHT, BLOCK), LOWEST, dtype=tl.float32)
    totals = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tile_of(x_ptr, rows, cols, stride_x, inside, -float("inf"))
        higher = tl.maximum(tops, x)
        totals = totals * tl.exp(tops - higher) + tl.exp(x - higher)
        tops = higher
    top, total = tl.reduce((tops, totals), 1, joined)
    top = top[:, None]
    total = tl.maximum(total, 1.0)[:, None]
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tile_of(x_ptr, rows, cols, stride_x, inside, -float("inf"))
        put(y_ptr, rows, cols, stride_y, inside, tl.exp(x - top) / total)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, stride_dy, stride_y, stride_dx,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr, HEIGHT: tl.constexpr,
):  # fmt: skip
    """dx = y * (dy - sum(y * dy)) for HEIGHT rows, BLOCK columns at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    products = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        y = tile_of(y_ptr, rows, cols, stride_y, inside, 0.0)
        products += y * tile_of(dy_ptr, rows, cols, stride_dy, inside, 0.0)
    mean_dy = tl.sum(products, axis=1, keep_dims=True)  # weighted by y, which sums to 1
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        y = tile_of(y_ptr, rows, cols, stride_y, inside, 0.0)
        dy = tile_of(dy_ptr, rows, cols, stride_dy, inside, 0.0)
        put(dx_ptr, rows, cols, stride_dx, inside, y * (dy - mean_dy))


def tile_for(n_cols):
    """Return the columns and the rows of a program's tile."""
    width = min(block_of(n_cols), TILE)
    return width, min(TILE // width, 16)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    width, height = tile_for(n_cols)
    on(softmax_kernel, x)[(triton.cdiv(n_rows, height),)](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width, HEIGHT=height
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    width, height = tile_for(n_cols)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[(triton.cdiv(n_rows, height),)](
        dy, y, out, n_rows, *strides, N_COLS=n_cols, BLOCK=width, HEIGHT=height
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
