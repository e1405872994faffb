# labs/lab4_production_slice/softmax.py | right | right
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

Every lane keeps a maximum and a sum of its own while the blocks pass; they are joined once for each row. The
second sweep starts with the block that was loaded last, which is most likely still in the cache.
"""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def columns(turn, BLOCK: tl.constexpr):
    """The column numbers of block `turn`."""
    return turn * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def scores(x_row, cols, n_cols):
    """The numbers of a row for softmax: minus infinity past its end."""
    return load(x_row, cols, n_cols, -float("inf"))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    source = x_ptr + row * stride_x
    target = y_ptr + row * stride_y

    lane_top = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    lane_total = tl.zeros((BLOCK,), dtype=tl.float32)
    for turn in range(0, (N_COLS + BLOCK - 1) // BLOCK):
        x = scores(source, columns(turn, BLOCK), N_COLS)
        higher = tl.maximum(lane_top, x)
        lane_total = lane_total * tl.exp(lane_top - higher) + tl.exp(x - higher)
        lane_top = higher
    top = tl.max(lane_top, axis=0)
    total = tl.sum(lane_total * tl.exp(lane_top - top), axis=0)

    for turn in range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = columns((N_COLS + BLOCK - 1) // BLOCK - 1 - turn, BLOCK)
        store(target, cols, N_COLS, tl.exp(scores(source, cols, N_COLS) - top) / total)


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

    lane_products = tl.zeros((BLOCK,), dtype=tl.float32)
    for turn in range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = columns(turn, BLOCK)
        lane_products += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    products = tl.sum(lane_products, axis=0)

    for turn in range(0, (N_COLS + BLOCK - 1) // BLOCK):
        cols = columns((N_COLS + BLOCK - 1) // BLOCK - 1 - turn, BLOCK)
        centred = load(dy_row, cols, N_COLS) - products
        store(dx_row, cols, N_COLS, centred * load(y_row, cols, N_COLS))


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    sizes = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), **sizes)
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=dy.device, dtype=dy.dtype)
    sizes = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, dy.stride(0), y.stride(0), out.stride(0), **sizes)
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
        return backward_op(dy.contiguous(), ctx.saved_tensors[0])


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
