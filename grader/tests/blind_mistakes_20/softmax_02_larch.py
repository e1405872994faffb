# labs/lab4_production_slice/softmax.py | corner | narrow_kernel (rows of at most 512 columns) subtracts one maximum of the whole tile of 8 rows instead of the maximum of each row (tl.max(x, axis=1)[:, None]): rows that lie about 87 or more below another row of their tile underflow to 0 or lose digits; wider rows and rows of similar level are right.
"""Softmax: narrow rows eight at a time in one tile, wide rows block by block with a running maximum."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

NARROW = 512  # columns, up to which a tile has several rows
TILE_ROWS = 8
WIDE_BLOCK = 8192


@triton.jit
def narrow_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Softmax of ROWS rows, each of them completely in the tile."""
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    rows = first + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    inside = (rows < n_rows) & (cols < N_COLS)
    x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(tl.max(x, axis=1), axis=0)
    powers = tl.exp(x - top)
    total = tl.sum(powers, axis=1)[:, None]
    # rows past the end have the sum 0
    y = powers / tl.where(total > 0, total, 1.0)
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def wide_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of one row by the recurrence of lab 2."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = -3.4028234663852886e38
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) with contiguous columns and any row stride."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = triton.next_power_of_2(n_cols)
    if n_cols <= NARROW:
        grid = (triton.cdiv(n_rows, TILE_ROWS),)
        on(narrow_kernel, x)[grid](
            x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width, ROWS=TILE_ROWS
        )
    else:
        on(wide_kernel, x)[(n_rows,)](
            x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=min(width, WIDE_BLOCK)
        )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (load(dy_row, cols, N_COLS) - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDE_BLOCK)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=block)
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
        probabilities = forward_op(x)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        return backward_op(dy.contiguous(), ctx.saved_tensors[0])


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
