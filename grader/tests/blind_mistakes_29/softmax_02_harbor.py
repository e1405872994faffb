# labs/lab4_production_slice/softmax.py | right | right
"""Row softmax, its gradient and the differentiable operator. Every lane keeps a maximum and a sum of its own."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Program i turns row i of x into row i of y.

    Lane j sees columns j, j + BLOCK, j + 2 * BLOCK and so on. The lanes meet once, behind the loop.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    lane_top = tl.zeros((BLOCK,), dtype=tl.float32) + LOWEST
    lane_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS, -float("inf"))
        raised = tl.maximum(lane_top, x)
        lane_sum = lane_sum * tl.exp(lane_top - raised) + tl.exp(x - raised)
        lane_top = raised

    # A lane that saw nothing but -inf has the sum 0, and stays out of this.
    top = tl.max(lane_top, axis=0)
    share = 1.0 / tl.sum(lane_sum * tl.exp(lane_top - top), axis=0)

    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        store(y_row, start + lanes, N_COLS, tl.exp(x - top) * share)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), into `out` where it is given."""
    if out is None:
        out = torch.empty_like(x)
    on(softmax_kernel, x)[(x.size(0),)](
        x_ptr=x,
        y_ptr=out,
        stride_x=x.stride(0),
        stride_y=out.stride(0),
        N_COLS=x.size(1),
        BLOCK=block_of(x.size(1)),
    )
    return out


@triton.jit
def both(y_row, dy_row, cols, n_cols):
    """One block of y and of dy, 0 past the end."""
    return load(y_row, cols, n_cols), load(dy_row, cols, n_cols)


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
        y, dy = both(y_row, dy_row, start + lanes, N_COLS)
        lane_products += y * dy
    products = tl.sum(lane_products, axis=0)

    for start in range(0, N_COLS, BLOCK):
        y, dy = both(y_row, dy_row, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, (dy - products) * y)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    if out is None:
        out = torch.empty_like(dy)
    strides = [tensor.stride(0) for tensor in (dy, y, out)]
    on(gradient_kernel, dy)[(dy.size(0),)](
        dy, y, out, *strides, N_COLS=dy.size(1), BLOCK=block_of(dy.size(1))
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
        result = forward_op(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        result = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), result)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
