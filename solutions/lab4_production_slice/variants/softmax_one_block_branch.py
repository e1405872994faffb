"""EXPECT PASS from fused_softmax_forward and fused_softmax_backward and fused_softmax: two ways."""

from typing import Optional

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite number of fp32


@triton.jit
def start_of(ptr, stride):
    """Pointer to the row of this program."""
    return ptr + tl.program_id(axis=0).to(tl.int64) * stride


@triton.jit
def top_and_total(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Maximum of the row, and the sum of exp(x - maximum)."""
    top = LOWEST
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, other=-float("inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    return top, total


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    x_row = start_of(x_ptr, stride_x)
    y_row = start_of(y_ptr, stride_y)
    if N_COLS <= BLOCK:
        # The whole row is in registers: no recurrence, and no second load.
        cols = tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        store(y_row, cols, N_COLS, e / tl.sum(e, axis=0))
    else:
        top, total = top_and_total(x_row, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = load(x_row, cols, N_COLS, other=-float("inf"))
            store(y_row, cols, N_COLS, tl.exp(x - top) / total)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    dy_row = start_of(dy_ptr, stride_dy)
    y_row = start_of(y_ptr, stride_y)
    dx_row = start_of(dx_ptr, stride_dx)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        products += load(y_row, cols, N_COLS) * load(dy_row, cols, N_COLS)
    s = tl.sum(products, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        store(dx_row, cols, N_COLS, load(y_row, cols, N_COLS) * (load(dy_row, cols, N_COLS) - s))


def _check(*matrices: torch.Tensor) -> None:
    first = matrices[0]
    for matrix in matrices:
        if matrix.dim() != 2:
            raise ValueError(f"a matrix is needed, this has {matrix.dim()} dimensions")
        if matrix.shape != first.shape or matrix.dtype != first.dtype:
            raise ValueError(
                f"{matrix.dtype} {tuple(matrix.shape)} does not match {first.dtype} {tuple(first.shape)}"
            )
        assert matrix.stride(1) == 1 or matrix.shape[1] <= 1, "columns must be contiguous"


def fused_softmax_forward(x, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows may be any number of elements apart."""
    out = torch.empty_like(x) if out is None else out
    _check(x, out)
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


def fused_softmax_backward(dy, y, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    _check(dy, y, out)
    n_rows, n_cols = y.shape
    on(gradient_kernel, y)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward."""
    return FusedSoftmax.apply(x)
