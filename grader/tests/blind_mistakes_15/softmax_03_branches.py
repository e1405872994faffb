# labs/lab4_production_slice/softmax.py | two mistakes | (1) For rows of several blocks the second loop of softmax_kernel has N_COLS // BLOCK turns, so the last, partial block of the row is never stored; it needs the number of blocks rounded up. (2) FusedSoftmax.forward saves x where the gradient needs y.
"""Softmax with a branch for rows that fit into one block."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        store(y_row, lanes, N_COLS, e / tl.sum(e, axis=0))
    else:
        top = tl.full([], LOWEST, tl.float32)
        total = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS, other=-float("inf"))
            higher = tl.maximum(top, tl.max(x, axis=0))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
            top = higher
        for block in range(N_COLS // BLOCK):
            cols = block * BLOCK + lanes
            x = load(x_row, cols, N_COLS, other=-float("inf"))
            store(y_row, cols, N_COLS, tl.exp(x - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        dy = load(dy_row, lanes, N_COLS)
        y = load(y_row, lanes, N_COLS)
        store(dx_row, lanes, N_COLS, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        products = 0.0
        for start in range(0, N_COLS, BLOCK):
            dy = load(dy_row, start + lanes, N_COLS)
            y = load(y_row, start + lanes, N_COLS)
            products += tl.sum(y * dy, axis=0)
        for start in range(0, N_COLS, BLOCK):
            dy = load(dy_row, start + lanes, N_COLS)
            y = load(y_row, start + lanes, N_COLS)
            store(dx_row, start + lanes, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
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
        ctx.save_for_backward(x)
        return forward_op(x)

    @staticmethod
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), saved)


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
