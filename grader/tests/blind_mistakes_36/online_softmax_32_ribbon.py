# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows: rows of one block without a loop, longer ones online. The gradient computes y once more."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        inside = lanes < n_cols
        x = tl.load(x_row_ptr + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_row_ptr + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            x = tl.load(x_row_ptr + start + lanes, mask=inside, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            x = tl.load(x_row_ptr + start + lanes, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row_ptr + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


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
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        inside = lanes < n_cols
        dy = tl.load(dy_row_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row_ptr + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            dy = tl.load(dy_row_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            dy = tl.load(dy_row_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def meta(n_cols: int, widest: int, columns_per_warp: int):
    """Keywords of a launch: width of a block, whether it holds a row, and a power of two of warps."""
    block = triton.next_power_of_2(n_cols)
    one_block = block <= widest
    if not one_block:
        block = widest
    warps = 1
    while warps < 32 and warps * columns_per_warp < block:
        warps *= 2
    return {"BLOCK": block, "ONE_BLOCK": one_block, "num_warps": warps}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, whose columns are contiguous; any row strides."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), **meta(n_cols, FORWARD_BLOCK, 2048)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and y; any row strides."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **meta(n_cols, BACKWARD_BLOCK, 512)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Keeps x, which somebody else mostly keeps anyway, and computes y again for the gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        y = softmax_forward(x)
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
