# labs/lab4_production_slice/softmax.py | contract | Exercise fused_softmax_backward: without `out` the result is `torch.empty_strided(dy.shape, dy.stride(), ...)`, which has the row stride of dy; the README asks for a new contiguous tensor: `torch.empty(dy.shape, ...)`. Shows where no `out` is given and rows of dy do not touch; the numbers are right.
"""Softmax over rows of any length: forward, backward, and both as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32
WIDEST_BLOCK = 4096


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x - top) / sum(exp(x - top)), where top is the maximum of the row; program i computes row i.

    A row of one block stays in registers. A longer one is read twice, with the sum of each block in units of the
    maximum so far.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, cols, N_COLS, other=float("-inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        store(y_row, cols, N_COLS, e / tl.sum(e, axis=0))
    else:
        top = tl.full((), LOWEST, tl.float32)
        total = tl.full((), 0.0, tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + cols, N_COLS, other=float("-inf"))
            higher = tl.maximum(top, tl.max(x, axis=0))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
            top = higher
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + cols, N_COLS, other=float("-inf"))
            store(y_row, start + cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    Each row holds at least one finite value.
    """
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), WIDEST_BLOCK)
    on(softmax_kernel, x)[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block)
    return out


@triton.jit
def both(dy_row, y_row, cols, n_cols):
    """dy and y at these columns of a row, in fp32."""
    return load(dy_row, cols, n_cols), load(y_row, cols, n_cols)


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
    cols = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        dy, y = both(dy_row, y_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            dy, y = both(dy_row, y_row, start + cols, N_COLS)
            products += y * dy
        total = tl.sum(products, axis=0)
        for start in range(0, N_COLS, BLOCK):
            dy, y = both(dy_row, y_row, start + cols, N_COLS)
            store(dx_row, start + cols, N_COLS, y * (dy - total))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass.

    Both are (n_rows, n_cols) of one dtype. The gradient goes to `out`, where one is given.
    """
    if out is None:
        out = torch.empty_strided(dy.shape, dy.stride(), device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    block = min(block_of(n_cols), WIDEST_BLOCK)
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block
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
        return backward_op(dy.contiguous(), ctx.saved_tensors[0])


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
