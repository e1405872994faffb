# labs/lab4_production_slice/softmax.py | corner | FusedSoftmax.backward: `dy if dy.stride(0) >= dy.shape[1] else dy.contiguous()` looks only at the row stride, so a dy whose columns lie apart in rows that do not overlap (every second column of a wider matrix: strides (2 * n_cols, 2)) is handed on without a copy, and the kernel reads it as if its columns were contiguous; dx of fused_softmax is wrong for such a dy only, while contiguous, padded, transposed and fully expanded dy are right; it should be dy.contiguous() whenever dy.stride(1) is not 1
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
MINUS_INF = tl.constexpr(float("-inf"))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    A row of one block is read once and exp is taken once; a longer one goes block by block, twice.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    block = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, block, N_COLS, MINUS_INF)
        powers = tl.exp(x - tl.max(x, axis=0))
        store(y_row, block, N_COLS, powers / tl.sum(powers, axis=0))
    else:
        top = LOWEST
        total = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + block, N_COLS, MINUS_INF)
            higher = tl.maximum(top, tl.max(x, axis=0))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
            top = higher
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + block, N_COLS, MINUS_INF)
            store(y_row, start + block, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.size(1)
    on(softmax_kernel, x)[(x.size(0),)](x, out, x.stride(0), out.stride(0), N_COLS=n, BLOCK=block_of(n))
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
    block = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        y = load(y_row, block, N_COLS)
        dy = load(dy_row, block, N_COLS)
        store(dx_row, block, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        products = 0.0
        for start in range(0, N_COLS, BLOCK):
            y = load(y_row, start + block, N_COLS)
            products += tl.sum(y * load(dy_row, start + block, N_COLS), axis=0)
        for start in range(0, N_COLS, BLOCK):
            y = load(y_row, start + block, N_COLS)
            dy = load(dy_row, start + block, N_COLS)
            store(dx_row, start + block, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n = dy.size(1)
    on(gradient_kernel, dy)[(dy.size(0),)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n, BLOCK=block_of(n)
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
        dy = dy if dy.stride(0) >= dy.shape[1] else dy.contiguous()
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
