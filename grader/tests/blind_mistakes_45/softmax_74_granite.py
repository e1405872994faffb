# labs/lab4_production_slice/softmax.py | right | Skeleton softmax.py, exercise fused_softmax_backward. Unusual: exp2 with log2(e) after the difference, a constexpr branch for rows of one block, for longer rows a maximum and a sum in each lane that `tl.reduce` joins by an own combine function (blocks of 4096 there), and the backward kernel's second loop runs from the last block to the first.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(x, top):
    """Return exp(x - top); the difference comes first, so that no digits of x are lost."""
    return tl.exp2((x - top) * LOG2E)


@triton.jit
def join(top_a, total_a, top_b, total_b):
    """Join two parts of a row, each a maximum and a sum in units of it; for tl.reduce."""
    top = tl.maximum(top_a, top_b)
    return top, total_a * power(top_a, top) + total_b * power(top_b, top)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    A row of one block stays in registers. In a longer one each lane has a maximum and a sum of its own, and the
    lanes are joined behind the loop.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS, float("-inf"))
        e = power(x, tl.max(x, axis=0))
        store(y_row, lanes, N_COLS, e / tl.sum(e, axis=0))
    else:
        tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
        totals = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, float("-inf"))
            higher = tl.maximum(tops, x)
            totals = totals * power(tops, higher) + power(x, higher)
            tops = higher
        top, total = tl.reduce((tops, totals), 0, join)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, float("-inf"))
            store(y_row, start + lanes, N_COLS, power(x, top) / total)


def width_of(n_cols):
    """Return the width of a block of softmax_kernel: narrow where there are several, for two numbers a lane."""
    return block_of(n_cols) if n_cols <= 16384 else 4096


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width_of(n_cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype.

    The second loop goes from the last block to the first: the blocks that were read last are still in L2.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    inner = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inner += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for back in range(0, N_COLS, BLOCK):
        cols = (N_COLS - 1) // BLOCK * BLOCK - back + lanes
        y = load(y_row, cols, N_COLS)
        dx = y * (load(dy_row, cols, N_COLS) - inner)
        store(dx_row, cols, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    if out is None:
        out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype)
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
        return backward_op(dy.contiguous(), *ctx.saved_tensors)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
