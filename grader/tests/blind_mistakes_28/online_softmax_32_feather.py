# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax and its gradient: whole blocks without a mask first, then the rest of the row with one."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def fold(m, d, x):
    """Fold a block of scores into the running maximum m and the sum d relative to it."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, TAIL: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    whole = n_cols // BLOCK * BLOCK
    offs = tl.arange(0, BLOCK)
    rest = whole + offs
    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        m, d = fold(m, d, tl.load(x_ptr + start + offs).to(tl.float32))
    if TAIL:
        x_rest = tl.load(x_ptr + rest, mask=rest < n_cols, other=-float("inf")).to(tl.float32)
        m, d = fold(m, d, x_rest)
        y_rest = tl.exp(x_rest - m) / d
        tl.store(y_ptr + rest, y_rest.to(y_ptr.dtype.element_ty), mask=rest < n_cols)
    for start in range(0, whole, BLOCK):
        y = tl.exp(tl.load(x_ptr + start + offs).to(tl.float32) - m) / d
        tl.store(y_ptr + start + offs, y.to(y_ptr.dtype.element_ty))


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    TAIL: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    whole = n_cols // BLOCK * BLOCK
    offs = tl.arange(0, BLOCK)
    rest = whole + offs
    s = 0.0
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_ptr + start + offs).to(tl.float32)
        y = tl.load(y_ptr + start + offs).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    if TAIL:
        dy_rest = tl.load(dy_ptr + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
        y_rest = tl.load(y_ptr + rest, mask=rest < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy_rest * y_rest, axis=0)
        dx_rest = y_rest * (dy_rest - s)
        tl.store(dx_ptr + rest, dx_rest.to(dx_ptr.dtype.element_ty), mask=rest < n_cols)
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_ptr + start + offs).to(tl.float32)
        y = tl.load(y_ptr + start + offs).to(tl.float32)
        tl.store(dx_ptr + start + offs, (y * (dy - s)).to(dx_ptr.dtype.element_ty))


def shape_of_launch(n_cols: int, widest: int) -> dict:
    """Block width, whether a row ends within a block, and warps: one for each 512 columns."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "TAIL": n_cols % block != 0, "num_warps": min(max(block // 512, 2), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), **shape_of_launch(n_cols, FORWARD_BLOCK)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(y, memory_format=torch.contiguous_format) if out is None else out
    n_rows, n_cols = y.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        **shape_of_launch(n_cols, BACKWARD_BLOCK),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
