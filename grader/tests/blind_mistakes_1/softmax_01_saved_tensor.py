# lab4_production_slice/softmax.py | everywhere | FusedSoftmax.forward saves the input `inp` instead of the result, so backward_op(dy, y) gets x in the place of y and computes x * (dy - sum(x * dy)); forward and fused_softmax_backward themselves are right | "softmax y = exp(x - top) / total, dx = y * (dy - sum(y * dy))" and "from the incoming gradient and the forward result"; shows in the gradient of fused_softmax for all inputs
"""Row softmax, with a maximum and a sum for each lane."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """One program per row. Each lane keeps its own maximum and sum; the lanes meet once, at the end."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    lane_top = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    lane_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        v = load(x_row, start + lane, N_COLS, float("-inf"))
        new_top = tl.maximum(lane_top, v)
        lane_sum = lane_sum * tl.exp(lane_top - new_top) + tl.exp(v - new_top)
        lane_top = new_top

    top = tl.max(lane_top, axis=0)
    total = tl.sum(lane_sum * tl.exp(lane_top - top), axis=0)

    for start in range(0, N_COLS, BLOCK):
        v = load(x_row, start + lane, N_COLS, float("-inf"))
        store(y_row, start + lane, N_COLS, tl.exp(v - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    rows, width = x.shape
    kernel = on(softmax_kernel, x)
    kernel[(rows,)](x, out, x.stride(0), out.stride(0), N_COLS=width, BLOCK=block_of(width))
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy))."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(y_row, start + lane, N_COLS) * load(dy_row, start + lane, N_COLS)
    dot = tl.sum(acc, axis=0)

    for start in range(0, N_COLS, BLOCK):
        prob = load(y_row, start + lane, N_COLS)
        grad = load(dy_row, start + lane, N_COLS)
        store(dx_row, start + lane, N_COLS, prob * (grad - dot))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    if out is None:
        out = torch.empty_like(dy)
    rows, width = dy.shape
    kernel = on(gradient_kernel, dy)
    kernel[(rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=width, BLOCK=block_of(width)
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
    def forward(ctx, inp):
        """Return y for x."""
        ctx.save_for_backward(inp)
        return forward_op(inp)

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (saved,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), saved)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
