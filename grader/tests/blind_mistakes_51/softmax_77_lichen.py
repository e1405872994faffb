# labs/lab4_production_slice/softmax.py | error | In `dot_of`, which `gradient_kernel` calls, `products = 0` is an int32 that becomes fp32 in the loop (`products += tl.sum(...)`): Triton refuses a loop-carried variable that changes its type. It should be `products = 0.0`. fused_softmax_backward and the gradient of fused_softmax do not compile in any case on a GPU (the plain interpreter runs it and gets right numbers); the forward pass is right.
"""Softmax over rows of any length, with the sweeps of its kernels in helpers, and its gradient."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
WIDTH = 8192  # columns of a block at most


@triton.jit
def top_of(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the maximum of a row: one for each lane, joined behind the loop."""
    lanes = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        lanes = tl.maximum(lanes, load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf")))
    return tl.max(lanes, axis=0)


@triton.jit
def total_of(x_row, top, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the sum of exp(x - top) over a row, likewise."""
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        lanes += tl.exp(load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf")) - top)
    return tl.sum(lanes, axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = top_of(x_row, N_COLS, BLOCK)
    total = total_of(x_row, top, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        store(y_row, cols, N_COLS, tl.exp(load(x_row, cols, N_COLS, -float("inf")) - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), WIDTH)
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block)
    return out


@triton.jit
def dot_of(a_row, b_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the sum of a * b over two rows, in fp32."""
    products = 0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += tl.sum(load(a_row, cols, N_COLS) * load(b_row, cols, N_COLS), axis=0)
    return products


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
    products = dot_of(y_row, dy_row, N_COLS, BLOCK)
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
    block = min(block_of(n_cols), WIDTH)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    on(gradient_kernel, dy)[(n_rows,)](dy, y, out, *strides, N_COLS=n_cols, BLOCK=block)
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
