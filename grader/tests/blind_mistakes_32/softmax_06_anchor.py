# labs/lab4_production_slice/softmax.py | right | right
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
    """Each lane has a maximum and a sum of its own; they are joined once for the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    lane_top = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    lane_total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, other=float("-inf"))
        higher = tl.maximum(lane_top, x)
        lane_total = lane_total * tl.exp(lane_top - higher) + tl.exp(x - higher)
        lane_top = higher
    top = tl.max(lane_top, axis=0)
    total = tl.sum(lane_total * tl.exp(lane_top - top), axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        store(y_row, cols, N_COLS, tl.exp(load(x_row, cols, N_COLS) - top) / total)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); a row of one block stays in registers."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        y = load(y_row, lanes, N_COLS)
        dy = load(dy_row, lanes, N_COLS)
        store(dx_row, lanes, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            products += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
        weighted = tl.sum(products, axis=0)
        for start in range(0, N_COLS, BLOCK):
            y_part = load(y_row, start + lanes, N_COLS)
            dy_part = load(dy_row, start + lanes, N_COLS)
            store(dx_row, start + lanes, N_COLS, y_part * (dy_part - weighted))


def blocks_of(x):
    """Return how the rows of x are cut into blocks."""
    n_cols = x.shape[1]
    return {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = torch.empty_like(x) if out is None else out
    launch = on(softmax_kernel, x)[(x.shape[0],)]
    launch(x, out, x.stride(0), out.stride(0), **blocks_of(x))
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    launch = on(gradient_kernel, dy)[(dy.shape[0],)]
    launch(dy, y, out, dy.stride(0), y.stride(0), out.stride(0), **blocks_of(dy))
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
