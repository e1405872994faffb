# labs/lab4_production_slice/softmax.py | corner | In softmax_kernel, lanes past the end of the row keep `sums` as it was (tl.where(inside, ..., sums)), although `top` is common to all lanes; they need the factor exp(top - higher) too. Rows of more than one block (1024 columns) whose last block is partial and raises the maximum get a total that is too large; all others are right.
"""Softmax over rows of any length. Every lane adds up its own columns; one reduction of the sums at the end."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    top = tl.full((), LOWEST, tl.float32)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)  # one for each lane, all relative to top
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS, -float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        grown = sums * tl.exp(top - higher) + tl.exp(x - higher)
        sums = tl.where(inside, grown, sums)
        top = higher
    total = tl.sum(sums, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def narrow(n_cols):
    """Width of a block: a vector of sums is alive next to the block, so not the widest."""
    return min(block_of(n_cols), 1024)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=narrow(n_cols))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx

    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        lanes += load(dy_row, cols, N_COLS) * load(y_row, cols, N_COLS)
    products = tl.sum(lanes, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=narrow(n_cols)
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
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
