# labs/lab4_production_slice/softmax.py | corner | softmax_kernel ends each step of the first loop with `top = peak`, the maximum of this block, where it should be `top = higher`, the maximum so far; wrong by a factor in rows longer than 16384 columns in which a later block has a lower maximum than one before it (16385, 40000, descending); right for one block and where every block raises the maximum; shows in fused_softmax_forward and fused_softmax
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
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    offsets = tl.arange(0, BLOCK)
    top = tl.cast(LOWEST, tl.float32)
    total = 0.0
    for begin in range(0, N_COLS, BLOCK):
        x = load(x_row, begin + offsets, N_COLS, other=float("-inf"))
        peak = tl.max(x, axis=0)
        higher = tl.maximum(top, peak)
        old = total * tl.exp(top - higher)
        new = tl.sum(tl.exp(x - higher), axis=0)
        total = old + new
        top = peak
    for begin in range(0, N_COLS, BLOCK):
        x = load(x_row, begin + offsets, N_COLS, other=float("-inf"))
        store(y_row, begin + offsets, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.size(0), x.size(1)
    on(softmax_kernel, x)[(rows,)](x, out, x.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols))
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
    offsets = tl.arange(0, BLOCK)
    products = 0.0
    for begin in range(0, N_COLS, BLOCK):
        y = load(y_row, begin + offsets, N_COLS)
        dy = load(dy_row, begin + offsets, N_COLS)
        products += tl.sum(y * dy, axis=0)
    for begin in range(0, N_COLS, BLOCK):
        y = load(y_row, begin + offsets, N_COLS)
        dy = load(dy_row, begin + offsets, N_COLS)
        store(dx_row, begin + offsets, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    rows, cols = dy.size(0), dy.size(1)
    on(gradient_kernel, dy)[(rows,)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        N_COLS=cols,
        BLOCK=block_of(cols),
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
