# labs/lab4_production_slice/softmax.py | two mistakes | (1) In `short_rows_kernel`, `tl.softmax(x)` of a two-dimensional tile normalises along axis 0, over the rows; it should be `tl.softmax(x, dim=1, keep_dims=True)`. Wrong for all inputs of up to 512 columns (but one row of one column). (2) In `fused_softmax_forward`, the launch of `long_row_kernel` passes `x.stride(0), x.stride(0)`; the second should be `out.stride(0)`. Shows for more than 512 columns and more than one row where x and out have different row strides: rows of out are stored in wrong places.
"""Softmax over rows of any length: short rows several at a time, long rows block by block; and its gradient."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)
SHORT = 512  # columns, up to which a program takes several rows
TILE = 2048  # elements of such a program


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def short_rows_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Softmax of ROWS whole rows, which are one tile; program i has rows i * ROWS and on."""
    rows = (tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    inside = (rows < n_rows) & (cols < N_COLS)
    x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=float("-inf")).to(tl.float32)
    y = tl.softmax(x)
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def long_row_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of row i by program i, BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    top = LOWEST
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp2((top - higher) * LOG2E) + tl.sum(tl.exp2((x - higher) * LOG2E), axis=0)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, float("-inf"))
        store(y_row, start + lanes, N_COLS, tl.exp2((x - top) * LOG2E) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    if n_cols <= SHORT:
        rows = TILE // block
        on(short_rows_kernel, x)[(triton.cdiv(n_rows, rows),)](
            x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, ROWS=rows, BLOCK=block
        )
    else:
        on(long_row_kernel, x)[(n_rows,)](x, out, x.stride(0), x.stride(0), N_COLS=n_cols, BLOCK=block)
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        dy = load(dy_row, start + lanes, N_COLS)
        y = load(y_row, start + lanes, N_COLS)
        products += tl.sum(y * dy, axis=0)
    for start in range(0, N_COLS, BLOCK):
        dy = load(dy_row, start + lanes, N_COLS)
        y = load(y_row, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
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
