# labs/lab4_production_slice/softmax.py | two mistakes | In softmax_kernel the factor of the old sum is `tl.exp2(top - higher)` without `* LOG2E`, so rows of several blocks get a wrong sum; it should be tl.exp2((top - higher) * LOG2E). In gradient_kernel dx is `y * dy - products` and should be y * (dy - products).
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
LOG2E = tl.constexpr(1.4426950408889634)
MOST_COLS = 4096


def width_for(n_cols: int) -> int:
    """Columns that a program takes at a time."""
    return min(MOST_COLS, triton.next_power_of_2(n_cols))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    top = LOWEST
    total = 0.0
    for first in range(0, N_COLS, BLOCK):
        x = load(x_row, first + lanes, N_COLS, other=-float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp2(top - higher) + tl.sum(tl.exp2((x - higher) * LOG2E), axis=0)
        top = higher

    for first in range(0, N_COLS, BLOCK):
        x = load(x_row, first + lanes, N_COLS, other=-float("inf"))
        y = tl.exp2((x - top) * LOG2E) / total
        store(y_row, first + lanes, N_COLS, y)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    on(softmax_kernel, x)[(rows,)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        N_COLS=cols,
        BLOCK=width_for(cols),
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient of softmax; program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    products = 0.0
    for first in range(0, N_COLS, BLOCK):
        y = load(y_row, first + lanes, N_COLS)
        dy = load(dy_row, first + lanes, N_COLS)
        products += tl.sum(y * dy, axis=0)

    for first in range(0, N_COLS, BLOCK):
        y = load(y_row, first + lanes, N_COLS)
        dy = load(dy_row, first + lanes, N_COLS)
        dx = y * dy - products
        store(dx_row, first + lanes, N_COLS, dx)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
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
        BLOCK=width_for(cols),
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
        (result,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), result)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
