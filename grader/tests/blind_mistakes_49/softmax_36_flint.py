# labs/lab4_production_slice/softmax.py | two mistakes | (1) In `softmax_kernel`, `total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - peak), axis=0)`: `peak`, the maximum of this block alone, should be `higher`; shows in rows of more than 8192 columns of which a later block has a smaller maximum than one before (ascending rows are right). (2) In `fused_softmax_forward`, `launch(out, x, x.stride(0), out.stride(0), ...)`: the kernel takes stride_y first, so it should be `out.stride(0), x.stride(0)`; shows with more than one row where x and out have different row strides, at any length.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
WIDE = 8192  # a row up to this width is loaded once


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(y_ptr, x_ptr, stride_y, stride_x, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    A row of one block stays in registers; a longer one is swept twice.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS, -float("inf"))
        powers = tl.exp(x - tl.max(x, axis=0))
        store(y_row, lanes, N_COLS, powers / tl.sum(powers, axis=0))
    else:
        top = tl.full((), LOWEST, tl.float32)
        total = tl.full((), 0.0, tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, -float("inf"))
            # A block of -inf alone: its maximum is taken as a finite number, and each exp is 0.
            peak = tl.maximum(tl.max(x, axis=0), LOWEST)
            higher = tl.maximum(top, peak)
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - peak), axis=0)
            top = higher
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            x = load(x_row, cols, N_COLS, -float("inf"))
            store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(out, x, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=min(block_of(n_cols), WIDE))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dx_ptr, dy_ptr, y_ptr, stride_dx, stride_dy, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dx_row = dx_ptr + row * stride_dx
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        dy = load(dy_row, lanes, N_COLS)
        y = load(y_row, lanes, N_COLS)
        store(dx_row, lanes, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        products = tl.full((), 0.0, tl.float32)
        for start in range(0, N_COLS, BLOCK):
            dy = load(dy_row, start + lanes, N_COLS)
            products += tl.sum(dy * load(y_row, start + lanes, N_COLS), axis=0)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            dy = load(dy_row, cols, N_COLS)
            store(dx_row, cols, N_COLS, load(y_row, cols, N_COLS) * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    launch = on(gradient_kernel, dy)[(n_rows,)]
    strides = out.stride(0), dy.stride(0), y.stride(0)
    launch(out, dy, y, *strides, N_COLS=n_cols, BLOCK=min(block_of(n_cols), WIDE))
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
