# lab4_production_slice/softmax.py | corner | read() clamps every element with tl.maximum(v, -1.0e4) to avoid -inf - -inf, so a row whose finite entries are all near or below -1e4 loses its differences and its -inf entries (and the lanes past the end) count as -1e4 | "-inf in softmax. Entries may be -inf, also a whole block before small numbers" and y = exp(x - top) / total; shows only for rows whose maximum is about -9900 or lower, e.g. -20000 (with or without -inf)
"""Softmax over rows of any length."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def read(row_ptr, cols, n_cols):
    """Load scores; keeps -inf from turning into NaN later on."""
    v = load(row_ptr, cols, n_cols, float("-inf"))
    return tl.maximum(v, -1.0e4)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    x_ptr += pid * stride_x
    y_ptr += pid * stride_y
    if N_COLS <= BLOCK:
        # the whole row fits
        j = tl.arange(0, BLOCK)
        v = read(x_ptr, j, N_COLS)
        e = tl.exp(v - tl.max(v, axis=0))
        store(y_ptr, j, N_COLS, e / tl.sum(e, axis=0))
    else:
        m = -1.0e30
        z = 0.0
        for first in tl.range(0, N_COLS, BLOCK):
            v = read(x_ptr, first + tl.arange(0, BLOCK), N_COLS)
            m_new = tl.maximum(m, tl.max(v, axis=0))
            z = z * tl.exp(m - m_new) + tl.sum(tl.exp(v - m_new), axis=0)
            m = m_new
        for first in tl.range(0, N_COLS, BLOCK):
            j = first + tl.arange(0, BLOCK)
            store(y_ptr, j, N_COLS, tl.exp(read(x_ptr, j, N_COLS) - m) / z)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    y = torch.empty_like(x) if out is None else out
    M, N = x.shape
    on(softmax_kernel, x)[(M,)](x, y, x.stride(0), y.stride(0), N_COLS=N, BLOCK=block_of(N))
    return y


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    pid = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += pid * stride_dy
    y_ptr += pid * stride_y
    dx_ptr += pid * stride_dx
    s = 0.0
    for first in tl.range(0, N_COLS, BLOCK):
        j = first + tl.arange(0, BLOCK)
        s += tl.sum(load(dy_ptr, j, N_COLS) * load(y_ptr, j, N_COLS), axis=0)
    for first in tl.range(0, N_COLS, BLOCK):
        j = first + tl.arange(0, BLOCK)
        p = load(y_ptr, j, N_COLS)
        store(dx_ptr, j, N_COLS, p * load(dy_ptr, j, N_COLS) - p * s)


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input."""
    dx = torch.empty_like(dy) if out is None else out
    M, N = y.shape
    on(gradient_kernel, dy)[(M,)](
        dy, y, dx, dy.stride(0), y.stride(0), dx.stride(0), N_COLS=N, BLOCK=block_of(N)
    )
    return dx


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
