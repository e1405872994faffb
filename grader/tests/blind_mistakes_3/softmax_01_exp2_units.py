# labs/lab4_production_slice/softmax.py | corner | softmax_kernel, both loops: the maximum is that of x, but the exponent is exp2(x * LOG2E - top). On paper the factor cancels; for values of some hundreds (+300 or more, or all of a row near -1000) exp2 overflows or every term is 0, so NaN. It must be (x - top) * LOG2E, and the same factor in the rescaling.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32

LOG2E = tl.constexpr(1.4426950408889634)


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
    # running maximum and running sum, exp2 is the native instruction
    top = tl.full((), LOWEST, tl.float32)
    total = tl.zeros((), tl.float32)
    for off in tl.range(0, N_COLS, BLOCK):
        c = off + tl.arange(0, BLOCK)
        v = load(x_row, c, N_COLS, -float("inf"))
        new_top = tl.maximum(top, tl.max(v, 0))
        total = total * tl.exp2(top - new_top) + tl.sum(tl.exp2(v * LOG2E - new_top), 0)
        top = new_top
    inv = 1.0 / total
    for off in tl.range(0, N_COLS, BLOCK):
        c = off + tl.arange(0, BLOCK)
        v = load(x_row, c, N_COLS, -float("inf"))
        store(y_row, c, N_COLS, tl.exp2(v * LOG2E - top) * inv)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
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
    acc = tl.zeros((BLOCK,), tl.float32)
    for off in tl.range(0, N_COLS, BLOCK):
        c = off + tl.arange(0, BLOCK)
        acc += load(y_row, c, N_COLS) * load(dy_row, c, N_COLS)
    products = tl.sum(acc, 0)
    for off in tl.range(0, N_COLS, BLOCK):
        c = off + tl.arange(0, BLOCK)
        store(dx_row, c, N_COLS, load(y_row, c, N_COLS) * (load(dy_row, c, N_COLS) - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    rows, cols = dy.shape
    on(gradient_kernel, dy)[(rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols)
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
