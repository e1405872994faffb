# labs/lab4_production_slice/softmax.py | corner | softmax_kernel, `total += ...` in the branch for the rest of the row: when the rest (the last, partial block) raises the maximum, the sum of the full blocks is not rescaled, so rows of more than 4096 columns, no multiple of 4096, whose maximum is in the rest get a total that is too large. It should be `total = total * exp(old top - new top) + ...`.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

CAP = 4096  # narrower blocks than WIDEST: more programs fit on an SM


def width(n_cols: int) -> int:
    """Columns of a block."""
    return min(block_of(n_cols), CAP)


@triton.jit
def whole(row_ptr, cols):
    """Load a block that lies entirely in the row: no mask, so the loads are as wide as they get."""
    return tl.load(row_ptr + cols).to(tl.float32)


@triton.jit
def put_whole(row_ptr, cols, values):
    """Store such a block."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    The first FULL columns come in whole blocks, the rest of the row in one block with a mask.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    FULL: tl.constexpr = N_COLS // BLOCK * BLOCK
    lanes = tl.arange(0, BLOCK)
    # BEGIN TODO 1
    top = -3.4028234663852886e38  # the lowest finite number of fp32
    total = 0.0
    for start in range(0, FULL, BLOCK):
        x = whole(x_row, start + lanes)
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    if N_COLS > FULL:
        rest = load(x_row, FULL + lanes, N_COLS, -float("inf"))
        top = tl.maximum(top, tl.max(rest, axis=0))
        total += tl.sum(tl.exp(rest - top), axis=0)
    # END TODO 1
    # BEGIN TODO 2
    for start in range(0, FULL, BLOCK):
        x = whole(x_row, start + lanes)
        put_whole(y_row, start + lanes, tl.exp(x - top) / total)
    if N_COLS > FULL:
        rest = load(x_row, FULL + lanes, N_COLS, -float("inf"))
        store(y_row, FULL + lanes, N_COLS, tl.exp(rest - top) / total)
    # END TODO 2


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 3
    n_rows, n_cols = x.shape
    grid = (n_rows,)
    on(softmax_kernel, x)[grid](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width(n_cols))
    # END TODO 3
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
    FULL: tl.constexpr = N_COLS // BLOCK * BLOCK
    lanes = tl.arange(0, BLOCK)
    # BEGIN TODO 4
    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, FULL, BLOCK):
        terms += whole(y_row, start + lanes) * whole(dy_row, start + lanes)
    if N_COLS > FULL:
        terms += load(y_row, FULL + lanes, N_COLS) * load(dy_row, FULL + lanes, N_COLS)
    products = tl.sum(terms, axis=0)
    # END TODO 4
    # BEGIN TODO 5
    for start in range(0, FULL, BLOCK):
        y = whole(y_row, start + lanes)
        put_whole(dx_row, start + lanes, y * (whole(dy_row, start + lanes) - products))
    if N_COLS > FULL:
        y_rest = load(y_row, FULL + lanes, N_COLS)
        dy_rest = load(dy_row, FULL + lanes, N_COLS)
        store(dx_row, FULL + lanes, N_COLS, y_rest * (dy_rest - products))
    # END TODO 5


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    # BEGIN TODO 6
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=width(n_cols))
    # END TODO 6
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
        # BEGIN TODO 7
        result = forward_op(x)
        ctx.save_for_backward(result)
        return result
        # END TODO 7

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        # BEGIN TODO 8
        y = ctx.saved_tensors[0]
        return backward_op(dy.contiguous(), y)
        # END TODO 8


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
