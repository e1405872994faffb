# labs/lab4_production_slice/softmax.py | error | softmax_kernel skips a block of -inf alone by `continue`, which Triton's compiler does not support (the kernel does not compile in any case; in the interpreter it runs and is right). The loop should have no `continue`: start from LOWEST, so that such a block adds 0, or choose by tl.where. gradient_kernel is right.
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
    offs = tl.arange(0, BLOCK)

    top = float("-inf")
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + offs, N_COLS, float("-inf"))
        block_top = tl.max(x, axis=0)
        if block_top == float("-inf"):
            continue  # nothing of this block counts, and -inf - -inf would be NaN
        new_top = tl.maximum(block_top, top)
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), axis=0)
        top = new_top

    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + offs, N_COLS, float("-inf"))
        store(y_row, start + offs, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    grid = (rows,)
    on(softmax_kernel, x)[grid](x, out, x.stride(0), out.stride(0), N_COLS=cols, BLOCK=block_of(cols))
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
    offs = tl.arange(0, BLOCK)

    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + offs, N_COLS)
        dy = load(dy_row, start + offs, N_COLS)
        products += tl.sum(y * dy, axis=0)

    for start in range(0, N_COLS, BLOCK):
        y = load(y_row, start + offs, N_COLS)
        dy = load(dy_row, start + offs, N_COLS)
        store(dx_row, start + offs, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    rows, cols = y.shape
    grid = (rows,)
    on(gradient_kernel, dy)[grid](
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
