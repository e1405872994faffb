# labs/lab4_production_slice/softmax.py | two mistakes | (1) In `softmax_kernel`, `total * tl.exp(top - here)` should be `total * tl.exp(top - higher)`: wrong in `fused_softmax_forward` and `fused_softmax` for rows of several blocks (more than 16384 columns) in which a block does not raise the maximum so far. (2) In `gradient_kernel`, `dx_row = dx_ptr + row * stride_dy` should use a stride of its own for dx (`out.stride(0)`, which is not handed over): wrong in `fused_softmax_backward` where the row strides of dy and the result differ and there is more than one row.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator.

Each program begins with the last block of its row and keeps it in registers to the end. Only rows of several
blocks load anything twice, and of those all blocks but one.
"""

import torch
import triton
import triton.language as tl
from rows import WIDEST, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


def width_of(n_cols: int) -> int:
    """Return the width of a block: the whole row, or less where two blocks are held at once."""
    return triton.next_power_of_2(n_cols) if n_cols <= WIDEST else WIDEST // 2


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    x and y are (n_rows, N_COLS) of one dtype, with contiguous columns; stride_x and stride_y are the elements
    from one row to the next. A program takes BLOCK columns at a time.
    """
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK  # where the last block begins
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    kept = load(x_row, LAST + lanes, N_COLS, float("-inf"))
    top = tl.maximum(tl.max(kept, axis=0), LOWEST)
    total = tl.sum(tl.exp(kept - top), axis=0)
    for start in range(0, LAST, BLOCK):
        x = load(x_row, start + lanes, N_COLS, float("-inf"))
        here = tl.max(x, axis=0)
        higher = tl.maximum(top, here)
        total = total * tl.exp(top - here) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    for start in range(0, LAST, BLOCK):
        x = load(x_row, start + lanes, N_COLS, float("-inf"))
        store(y_row, start + lanes, N_COLS, tl.exp(x - top) / total)
    store(y_row, LAST + lanes, N_COLS, tl.exp(kept - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=width_of(n_cols))
    return out


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """dx = y * (dy - sum(y * dy)); program i computes row i of (n_rows, N_COLS) matrices of one dtype."""
    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dy
    lanes = tl.arange(0, BLOCK)
    kept_dy = load(dy_row, LAST + lanes, N_COLS)
    kept_y = load(y_row, LAST + lanes, N_COLS)
    products = tl.sum(kept_y * kept_dy, axis=0)
    for start in range(0, LAST, BLOCK):
        cols = start + lanes
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, LAST, BLOCK):
        cols = start + lanes
        dy = load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, load(y_row, cols, N_COLS) * (dy - products))
    store(dx_row, LAST + lanes, N_COLS, kept_y * (kept_dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), N_COLS=n_cols, BLOCK=width_of(n_cols)
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
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
