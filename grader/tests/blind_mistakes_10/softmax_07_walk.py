# labs/lab4_production_slice/softmax.py | right | not online: one loop for the maximum, one for the sum, one for the store, so a long row is read three times; in all kernels a fixed number of programs walks over the rows with `while`.
"""Softmax in three sweeps, by programs that take one row after the other."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PROGRAMS = 2048  # at most; each takes every PROGRAMS-th row


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Rows i, i + programs, i + 2 * programs ..."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        # The row has a finite value, so the maximum of the whole row is finite.
        largest = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            largest = tl.maximum(largest, load(x_row, start + lanes, N_COLS, float("-inf")))
        top = tl.max(largest, axis=0)
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            sums += tl.exp(load(x_row, start + lanes, N_COLS, float("-inf")) - top)
        total = tl.sum(sums, axis=0)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, float("-inf"))
            store(y_row, start + lanes, N_COLS, tl.exp(x - top) / total)
        row += tl.num_programs(axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)), likewise."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            products += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
        total = tl.sum(products, axis=0)
        for start in range(0, N_COLS, BLOCK):
            dx = load(y_row, start + lanes, N_COLS) * (load(dy_row, start + lanes, N_COLS) - total)
            store(dx_ptr + row * stride_dx, start + lanes, N_COLS, dx)
        row += tl.num_programs(axis=0)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
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
