# labs/lab4_production_slice/softmax.py | wrong everywhere | tile_columns, `lines * TALL`: the lines of a tile start TALL columns apart, so lines overlap: columns are counted several times in the sums, and the last columns of a tile are never read or stored (forward, backward and autograd; only rows of at most 4 columns are right). It should be `lines * WIDE`.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

A step of a program is a two-dimensional tile of one row, TALL lines of WIDE columns: short reductions along the
lines first, then one over the few numbers that are left.
"""

import torch
import triton
import triton.language as tl
from rows import load, on, store
from torch.library import triton_op

TILES = [
    triton.Config({"TALL": 4, "WIDE": wide}, num_warps=warps)
    for wide, warps in ((256, 4), (512, 4), (1024, 8), (2048, 8))
]


@triton.jit
def tile_columns(start, TALL: tl.constexpr, WIDE: tl.constexpr):
    """Column numbers of the tile that begins at column `start`, one line behind the other."""
    lines = tl.arange(0, TALL)[:, None]
    lanes = tl.arange(0, WIDE)[None, :]
    return start + lines * TALL + lanes


@triton.jit
def tile_max(tile):
    """Largest number of a tile."""
    return tl.max(tl.max(tile, axis=1), axis=0)


@triton.jit
def tile_sum(tile):
    """Sum of a tile."""
    return tl.sum(tl.sum(tile, axis=1), axis=0)


@triton.autotune(configs=TILES, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    top = -3.4028234663852886e38  # finite, so that a tile of -inf alone gives no NaN
    total = 0.0
    for start in range(0, N_COLS, TALL * WIDE):
        x = load(x_row, tile_columns(start, TALL, WIDE), N_COLS, -float("inf"))
        higher = tl.maximum(top, tile_max(x))
        total = total * tl.exp(top - higher) + tile_sum(tl.exp(x - higher))
        top = higher

    for start in range(0, N_COLS, TALL * WIDE):
        cols = tile_columns(start, TALL, WIDE)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols)
    return out


@triton.autotune(configs=TILES, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    stride_dy,
    stride_y,
    stride_dx,
    N_COLS: tl.constexpr,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx

    products = 0.0
    for start in range(0, N_COLS, TALL * WIDE):
        cols = tile_columns(start, TALL, WIDE)
        products += tile_sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS))

    for start in range(0, N_COLS, TALL * WIDE):
        cols = tile_columns(start, TALL, WIDE)
        y = load(y_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols
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
        y = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
