# labs/lab4_production_slice/softmax.py | corner | FusedSoftmax.backward makes dy contiguous only where one of its strides is 0 (expanded). A transposed dy, or one with every second column of a wider matrix, reaches gradient_kernel with columns that lie apart, and is read wrongly; it should always call dy.contiguous().
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32

LOG2E = tl.constexpr(1.4426950408889634)
STEP = 4096


@triton.jit
def e_to(x):
    return tl.exp2(x * LOG2E)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of one row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    top = LOWEST
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lane, N_COLS, -float("inf"))
        before = top
        top = tl.maximum(before, tl.max(x, axis=0))
        total = total * e_to(before - top) + tl.sum(e_to(x - top), axis=0)
    scale = 1.0 / total
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lane, N_COLS, -float("inf"))
        store(y_row, start + lane, N_COLS, e_to(x - top) * scale)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)) for one row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        products += tl.sum(load(dy_row, start + lane, N_COLS) * load(y_row, start + lane, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        dy = load(dy_row, start + lane, N_COLS)
        y = load(y_row, start + lane, N_COLS)
        store(dx_row, start + lane, N_COLS, y * (dy - products))


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(softmax_kernel, x)[(rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=cols, BLOCK=min(block_of(cols), STEP), num_warps=8
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    rows, cols = dy.shape
    on(gradient_kernel, dy)[(rows,)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        N_COLS=cols,
        BLOCK=min(block_of(cols), STEP),
        num_warps=8,
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
        if dy.stride(0) == 0 or dy.stride(1) == 0:
            dy = dy.contiguous()
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
