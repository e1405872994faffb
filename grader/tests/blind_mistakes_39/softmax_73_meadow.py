# labs/lab4_production_slice/softmax.py | corner | In gradient_kernel the last block is moved back to end with the row (columns LAST to N_COLS), so it overlaps the whole blocks of the loop where N_COLS is above BLOCK and no multiple of it. For the stores this is harmless, but `products` counts y * dy of the overlapping columns twice: tl.sum(y_end * dy_end) and the loop both have them. dx of fused_softmax_backward and fused_softmax is wrong for rows above 16384 columns that are no multiple of 16384 (16385, 20011, 24576, 40000), right for shorter rows and 131072. The sum of the last block should take only columns from the end of the loop's blocks on: tl.where(end >= (LAST + BLOCK - 1) // BLOCK * BLOCK, y_end * dy_end, 0.0).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time. Each lane has a maximum and a sum of
    its own, and they are joined behind the loop.
    """
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
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    stride_dy,
    stride_y,
    stride_dx,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    LAST: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype.

    The last block begins at column LAST, ends with the row, and stays in registers. All blocks before it are
    whole, so only a row shorter than a block has lanes past its end.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    end = LAST + lanes
    y_end = load(y_row, end, N_COLS)
    dy_end = load(dy_row, end, N_COLS)
    products = tl.sum(y_end * dy_end, axis=0)
    for start in range(0, LAST, BLOCK):
        cols = start + lanes
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    store(dx_row, end, N_COLS, y_end * (dy_end - products))
    for start in range(0, LAST, BLOCK):
        cols = start + lanes
        y = load(y_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    block = block_of(n_cols)
    launch = on(gradient_kernel, y)[(n_rows,)]
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    launch(dy, y, out, *strides, N_COLS=n_cols, BLOCK=block, LAST=max(n_cols - block, 0))
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
