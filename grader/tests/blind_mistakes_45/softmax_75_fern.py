# labs/lab4_production_slice/softmax.py | corner | `x_start = (rows * stride_x).to(tl.int64)` and the same for `y_start` in `softmax_kernel`: the product is taken in int32 and converted afterwards; rows should be int64 before it. Shows where row * stride passes 2^31 while the stride itself fits in int32, as in matrices of more than 2^31 elements or rows that lie very far apart.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


def rows_of_a_program(block):
    """Return how many rows a program takes at once: several where a row is short."""
    return max(1, min(16, 2048 // block))


@triton.jit
def load_tile(ptr, offsets, inside):
    """Return a tile in fp32, -inf where it is not inside."""
    return tl.load(ptr + offsets, mask=inside, other=float("-inf")).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr
):
    """y = exp(x - top) / sum(exp(x - top)); program i computes ROWS rows, from row i * ROWS on.

    A tile has ROWS rows and BLOCK columns; each row of it has its own maximum and sum.
    """
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    x_start = (rows * stride_x).to(tl.int64)
    y_start = (rows * stride_y).to(tl.int64)
    top = tl.full((ROWS, 1), LOWEST, tl.float32)
    total = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load_tile(x_ptr, x_start + cols, (rows < n_rows) & (cols < N_COLS))
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=1, keep_dims=True)
        top = higher
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        y = tl.exp(load_tile(x_ptr, x_start + cols, inside) - top) / total
        tl.store(y_ptr + y_start + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value. After Milakov and Gimelshein, arXiv:1805.02867.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    at_once = rows_of_a_program(block)
    launch = on(softmax_kernel, x)[(triton.cdiv(n_rows, at_once),)]
    launch(x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block, ROWS=at_once)
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
    products = tl.zeros((), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += tl.sum(load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS), axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load(y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (load(dy_row, cols, N_COLS) - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=block_of(n_cols))
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
