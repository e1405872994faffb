# labs/lab4_production_slice/softmax.py | two mistakes | (1) in softmax_kernel the first sweep loads with `load(x_row, cols, N_COLS)`, so lanes past the end of the row hold 0 instead of -inf: they raise the maximum to at least 0 and each adds exp(0 - top) to the sum, wherever n_cols is no multiple of BLOCK (not a power of two, or a long row with a tail): y is too small, and 0 for rows far below 0; it should be load(..., other=-float("inf")). (2) in gradient_kernel dx = y * (dy - products / N_COLS) takes the mean of y * dy instead of the sum: dx is wrong in every case of more than one column; it should be y * (dy - products)
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


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
    offsets = tl.arange(0, BLOCK)

    top = -3.4028234663852886e38  # the lowest finite number: from -inf, a block of -inf would give NaN
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + offsets
        block = load(x_row, cols, N_COLS)
        new_top = tl.maximum(top, tl.max(block, axis=0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(block - new_top), axis=0)
        top = new_top

    for start in range(0, N_COLS, BLOCK):
        cols = start + offsets
        block = load(x_row, cols, N_COLS)
        store(y_row, cols, N_COLS, tl.exp(block - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    if out is None:
        out = torch.empty_like(x)
    on(softmax_kernel, x)[(x.size(0),)](
        x, out, x.stride(0), out.stride(0), N_COLS=x.size(1), BLOCK=block_of(x.size(1))
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient for row i of x by program i, from row i of dy and of y."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    offsets = tl.arange(0, BLOCK)

    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + offsets
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        products += tl.sum(dy * y, axis=0)

    common = products / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + offsets
        dy = load(dy_row, cols, N_COLS)
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - common))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    if out is None:
        out = torch.empty_like(dy)
    on(gradient_kernel, dy)[(dy.size(0),)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        N_COLS=dy.size(1),
        BLOCK=block_of(dy.size(1)),
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
        probabilities = forward_op(x)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        (probabilities,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), probabilities)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
