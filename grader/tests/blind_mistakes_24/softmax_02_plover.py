# labs/lab4_production_slice/softmax.py | corner | FusedSoftmax.backward: the test `dy.stride(0) < dy.size(1)` copies transposed and summed dy, but not a dy whose columns lie apart in wide rows (every second column of a wider matrix): the kernel then reads neighbouring columns and dx is wrong. It should be dy.contiguous() always (or test stride(1)).
"""Softmax with one running maximum and one running sum for each lane."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LOWEST = tl.constexpr(-3.4028234663852886e38)  # finite, so that LOWEST - LOWEST is 0


@triton.jit
def merge_lanes(m, d):
    """Maximum and sum of the row, from those of the lanes."""
    top = tl.max(m, axis=0)
    return top, tl.sum(d * tl.exp(m - top), axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax of row i by program i."""
    i = tl.program_id(axis=0).to(tl.int64)
    x_ptr += i * stride_x
    y_ptr += i * stride_y
    j = tl.arange(0, BLOCK)

    m = tl.full((BLOCK,), LOWEST, tl.float32)
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        v = load(x_ptr, j + first, N_COLS, -float("inf"))
        m_new = tl.maximum(m, v)
        d = d * tl.exp(m - m_new) + tl.exp(v - m_new)
        m = m_new
    top, total = merge_lanes(m, d)

    for first in range(0, N_COLS, BLOCK):
        v = load(x_ptr, j + first, N_COLS, -float("inf"))
        store(y_ptr, j + first, N_COLS, tl.exp(v - top) / total)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the columns of x; writes to out if there is one."""
    if out is None:
        out = torch.empty_like(x)
    rows = x.size(0)
    cols = x.size(1)
    on(softmax_kernel, x)[(rows,)](
        x,
        out,
        x.stride(0),
        out.stride(0),
        N_COLS=cols,
        BLOCK=block_of(cols),
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Gradient of row i by program i."""
    i = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += i * stride_dy
    y_ptr += i * stride_y
    dx_ptr += i * stride_dx
    j = tl.arange(0, BLOCK)

    s = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        s += load(dy_ptr, j + first, N_COLS) * load(y_ptr, j + first, N_COLS)
    s_row = tl.sum(s, axis=0)

    for first in range(0, N_COLS, BLOCK):
        g = load(dy_ptr, j + first, N_COLS) - s_row
        store(dx_ptr, j + first, N_COLS, g * load(y_ptr, j + first, N_COLS))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """dx from dy and the softmax y."""
    if out is None:
        out = torch.empty_like(dy)
    rows = y.size(0)
    cols = y.size(1)
    on(gradient_kernel, dy)[(rows,)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        N_COLS=cols,
        BLOCK=block_of(cols),
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
        # The kernel takes rows that lie apart, so a copy is needed only where rows overlap:
        # an expanded dy has a row stride of 0, a transposed one of 1.
        if dy.stride(0) < dy.size(1):
            dy = dy.contiguous()
        (y,) = ctx.saved_tensors
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
