# labs/lab4_production_slice/softmax.py | wrong everywhere | Skeleton softmax.py, exercise fused_softmax_backward (and the gradient of fused_softmax). `dx = weighted - inner[:, None]` in `gradient_kernel` is y * dy - sum(y * dy); the sum needs the factor y, too: y * (dy - sum). All cases of more than one column.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
AREA = 2048  # elements of a tile of several short rows


def tile_of(n_cols: int):
    """Return height and width of a tile: several short rows, or a part of a long one."""
    wide = block_of(n_cols)
    return max(AREA // wide, 1), wide


@triton.jit
def read(row_ptrs, cols, inside, other):
    """Return a tile in fp32, and `other` where there is no such element."""
    return tl.load(row_ptrs + cols, mask=inside, other=other).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)) for TALL rows, WIDE columns at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)[:, None]
    lanes = tl.arange(0, WIDE)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y
    top = tl.full((TALL,), LOWEST, dtype=tl.float32)
    total = tl.zeros((TALL,), dtype=tl.float32)
    for start in range(0, N_COLS, WIDE):
        cols = start + lanes
        x = read(x_rows, cols, (rows < n_rows) & (cols < N_COLS), float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), axis=1)
        top = higher
    for start in range(0, N_COLS, WIDE):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        y = tl.exp(read(x_rows, cols, inside, float("-inf")) - top[:, None]) / total[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    tall, wide = tile_of(n_cols)
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
    """The gradient for TALL rows of x, from dy and y; WIDE columns at a time."""
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)[:, None]
    lanes = tl.arange(0, WIDE)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx
    inner = tl.zeros((TALL,), dtype=tl.float32)
    for start in range(0, N_COLS, WIDE):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        weighted = read(y_rows, cols, inside, 0.0) * read(dy_rows, cols, inside, 0.0)
        inner += tl.sum(weighted, axis=1)
    for start in range(0, N_COLS, WIDE):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        weighted = read(y_rows, cols, inside, 0.0) * read(dy_rows, cols, inside, 0.0)
        dx = weighted - inner[:, None]
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    tall, wide = tile_of(n_cols)
    launch = on(gradient_kernel, dy)[(triton.cdiv(n_rows, tall),)]
    launch(
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, TALL=tall, WIDE=wide
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
