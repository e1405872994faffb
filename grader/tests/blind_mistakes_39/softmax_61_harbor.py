# labs/lab4_production_slice/softmax.py | wrong everywhere | softmax_kernel keeps a maximum and a sum for each lane and joins the lanes after the first loop, but `total = tl.sum(lane_total)` adds sums that are in units of different maxima: the factor is missing, it should be tl.sum(lane_total * tl.exp(lane_top - top)). In a row of one block total is the number of (finite) columns, so y is exp(x - top) / n_cols and rows sum to less than 1. Shows in every row of two or more columns unless all are equal; y, and through it fused_softmax's dx; fused_softmax_backward itself is right.
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

    Each of the BLOCK lanes runs its own online softmax over the columns lane, lane + BLOCK, ..., so that the
    loop has no reduction. The lanes are joined once, behind it.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    lane_top = tl.full((BLOCK,), LOWEST, tl.float32)
    lane_total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, other=-float("inf"))
        higher = tl.maximum(lane_top, x)
        lane_total = lane_total * tl.exp(lane_top - higher) + tl.exp(x - higher)
        lane_top = higher
    top = tl.max(lane_top, axis=0)
    total = tl.sum(lane_total, axis=0)

    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, other=-float("inf"))
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
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    lane_products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        lane_products += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
    products = tl.sum(lane_products, axis=0)

    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + lanes, N_COLS)
        dy = load(dy_row, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    launch = on(gradient_kernel, dy)[(n_rows,)]
    launch(
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
        y = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
