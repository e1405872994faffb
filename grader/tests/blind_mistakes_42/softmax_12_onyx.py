# labs/lab4_production_slice/softmax.py | wrong everywhere | In `gradient_kernel`, `inner = tl.sum(products, axis=0, keep_dims=True)` adds over the rows of the tile, and should be `axis=1`, over the columns. dx is wrong in nearly all cases, also that of `fused_softmax`; the forward pass is right.
"""Softmax in tiles of a few rows: short rows share a program, long ones take several tiles."""

import torch
import triton
import triton.language as tl
from rows import WARPS, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
AREA = 4096  # elements of a tile at most
TALLEST = 16  # rows of a tile at most


def shape_of(n_cols):
    """Return rows and columns of a tile for rows of n_cols columns, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), AREA)
    return min(TALLEST, AREA // cols), cols


@triton.jit
def tile_rows(n_rows, TALL: tl.constexpr):
    """Return the rows of this program as a column of int64, and which of them exist."""
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)[:, None]
    return rows, rows < n_rows


@triton.jit
def fetch(ptr, at, cols, mask, other):
    """Return a tile in fp32, and `other` where the mask is not set."""
    return tl.load(ptr + at + cols, mask=mask, other=other).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)) of TALL rows, each with its own maximum, WIDE columns at a time."""
    rows, exists = tile_rows(n_rows, TALL)
    top = tl.full((TALL, 1), LOWEST, dtype=tl.float32)
    total = tl.zeros((TALL, 1), dtype=tl.float32)
    for start in range(0, N_COLS, WIDE):
        cols = start + tl.arange(0, WIDE)[None, :]
        x = fetch(x_ptr, rows * stride_x, cols, exists & (cols < N_COLS), -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=1, keep_dims=True)
        top = higher
    for start in range(0, N_COLS, WIDE):
        cols = start + tl.arange(0, WIDE)[None, :]
        inside = exists & (cols < N_COLS)
        x = fetch(x_ptr, rows * stride_x, cols, inside, -float("inf"))
        y = tl.exp(x - top) / total
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    tall, wide = shape_of(n_cols)
    launch = on(softmax_kernel, x)[(triton.cdiv(n_rows, tall),)]
    launch(x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, TALL=tall, WIDE=wide)
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
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)) of TALL rows; products are added up as a tile and reduced once."""
    rows, exists = tile_rows(n_rows, TALL)
    products = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(0, N_COLS, WIDE):
        cols = start + tl.arange(0, WIDE)[None, :]
        inside = exists & (cols < N_COLS)
        dy = fetch(dy_ptr, rows * stride_dy, cols, inside, 0.0)
        products += dy * fetch(y_ptr, rows * stride_y, cols, inside, 0.0)
    inner = tl.sum(products, axis=0, keep_dims=True)
    for start in range(0, N_COLS, WIDE):
        cols = start + tl.arange(0, WIDE)[None, :]
        inside = exists & (cols < N_COLS)
        dy = fetch(dy_ptr, rows * stride_dy, cols, inside, 0.0)
        y = fetch(y_ptr, rows * stride_y, cols, inside, 0.0)
        dx = y * (dy - inner)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    tall, wide = shape_of(n_cols)
    launch = on(gradient_kernel, dy)[(triton.cdiv(n_rows, tall),)]
    strides = dy.stride(0), y.stride(0), out.stride(0)
    launch(dy, y, out, n_rows, *strides, N_COLS=n_cols, TALL=tall, WIDE=wide)
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
