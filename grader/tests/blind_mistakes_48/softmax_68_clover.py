# labs/lab4_production_slice/softmax.py | contract | `rows_like` allocates by `torch.empty_strided(x.size(), x.stride(), ...)`, used in `fused_softmax_forward` and `fused_softmax_backward` where no out is given. The README wants a new contiguous tensor, as of `torch.empty(x.shape, ...)`; where x or dy has gaps between its rows, the result has them as well. Values are right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def join(top, total, other_top, other_total):
    """Two maxima and the sums that belong to them, as one."""
    higher = tl.maximum(top, other_top)
    return higher, total * tl.exp(top - higher) + other_total * tl.exp(other_top - higher)


@triton.jit
def block_of_row(x_row, cols, N_COLS: tl.constexpr):
    """Maximum of a block of a row and its sum of exp(x - maximum); the maximum is finite in any case."""
    x = load(x_row, cols, N_COLS, -float("inf"))
    top = tl.maximum(tl.max(x, axis=0), LOWEST)
    return top, tl.sum(tl.exp(x - top), axis=0)


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
    top, total = block_of_row(x_row, lanes, N_COLS)
    for start in range(BLOCK, N_COLS, BLOCK):
        top_here, total_here = block_of_row(x_row, start + lanes, N_COLS)
        top, total = join(top, total, top_here, total_here)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS, -float("inf"))
        store(y_row, cols, N_COLS, tl.exp(x - top) / total)


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
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + lanes, N_COLS)
        products += tl.sum(y * load(dy_row, start + lanes, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + lanes, N_COLS)
        dy = load(dy_row, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, y * (dy - products))


def rows_like(x):
    """A matrix like x, with the same rows in the same places."""
    return torch.empty_strided(x.size(), x.stride(), device=x.device, dtype=x.dtype)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = rows_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(softmax_kernel, x)[(n_rows,)]
    launch(x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = rows_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    launch = on(gradient_kernel, y)[(n_rows,)]
    strides = [matrix.stride(0) for matrix in (dy, y, out)]
    launch(dy, y, out, *strides, N_COLS=n_cols, BLOCK=block_of(n_cols))
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
