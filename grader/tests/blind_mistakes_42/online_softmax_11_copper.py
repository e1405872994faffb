# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | Exercise softmax_backward (and so the gradient of softmax): in `put_gradient`, `dx = weight - total` is y * dy - s; it should be `weight - y * total`, with y passed in as well. Shows in all cases but rows of one column; both the one-block path and the loop use it.
"""Softmax of long and short rows: a row that fits one block stays in registers, a longer one is read twice."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def normal_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, SINGLE: tl.constexpr):
    """y = softmax of a row; with SINGLE the whole row is one block."""
    pid = tl.program_id(0).to(tl.int64)
    x_ptr += pid * stride_x
    y_ptr += pid * stride_y
    offs = tl.arange(0, BLOCK)
    if SINGLE:
        x = tl.load(x_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)
    else:
        top = -float("inf")
        norm = 0.0
        for first in range(0, n_cols, BLOCK):
            keep = first + offs < n_cols
            x = tl.load(x_ptr + first + offs, mask=keep, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(x, axis=0))
            base = tl.where(higher > -float("inf"), higher, 0.0)
            norm = norm * tl.exp(top - base) + tl.sum(tl.exp(x - base), axis=0)
            top = higher
        for first in range(0, n_cols, BLOCK):
            keep = first + offs < n_cols
            x = tl.load(x_ptr + first + offs, mask=keep, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - top) / norm
            tl.store(y_ptr + first + offs, y.to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def weighted(dy_ptr, y_ptr, cols, n_cols):
    """y and y * dy of some columns in fp32, both 0 past the end."""
    keep = cols < n_cols
    y = tl.load(y_ptr + cols, mask=keep, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + cols, mask=keep, other=0.0).to(tl.float32)
    return y, y * dy


@triton.jit
def put_gradient(dx_ptr, cols, n_cols, weight, total):
    """Store the gradient of some columns, from their y * dy and the sum of it over the row."""
    dx = weight - total
    tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    SINGLE: tl.constexpr,
):
    """dx of a row, from dy and y."""
    pid = tl.program_id(0).to(tl.int64)
    dy_ptr += pid * stride_dy
    y_ptr += pid * stride_y
    dx_ptr += pid * stride_dx
    offs = tl.arange(0, BLOCK)
    if SINGLE:
        y, weight = weighted(dy_ptr, y_ptr, offs, n_cols)
        put_gradient(dx_ptr, offs, n_cols, weight, tl.sum(weight, axis=0))
    else:
        lanes = tl.zeros((BLOCK,), dtype=tl.float32)
        for first in range(0, n_cols, BLOCK):
            y, weight = weighted(dy_ptr, y_ptr, first + offs, n_cols)
            lanes += weight
        total = tl.sum(lanes, axis=0)
        for first in range(0, n_cols, BLOCK):
            y, weight = weighted(dy_ptr, y_ptr, first + offs, n_cols)
            put_gradient(dx_ptr, first + offs, n_cols, weight, total)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the columns of x, (n_rows, n_cols), rows any number of elements apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    normal_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        SINGLE=n_cols <= block,
        num_warps=8 if block > 4096 else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and the result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        SINGLE=n_cols <= block,
        num_warps=16 if block > 4096 else 8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax for autograd."""

    @staticmethod
    def forward(ctx, x):
        """Compute y and save it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Compute dx."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of x over its columns."""
    return OnlineSoftmax.apply(x)
