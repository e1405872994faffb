# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_backward passes y.stride(0), dy.stride(0) in exchanged order (kernel wants stride_dy, stride_y), which is wrong where the two row strides differ. (2) OnlineSoftmax.backward makes dy contiguous only where dy.stride(1) == 0, so a transposed dy or every second column of a wider matrix gives wrong gradients; it should always call dy.contiguous().
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def fetch(row_ptr, cols, n_cols, other):
    """Columns of a row in fp32."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Store columns of a row in its own dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_row_ptr, start + tl.arange(0, BLOCK), n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = fetch(x_row_ptr, cols, n_cols, -float("inf"))
        put(y_row_ptr, cols, n_cols, tl.exp2((x - m) * LOG2E) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy), for row i in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s += tl.sum(fetch(dy_row_ptr, cols, n_cols, 0.0) * fetch(y_row_ptr, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = fetch(dy_row_ptr, cols, n_cols, 0.0)
        y = fetch(y_row_ptr, cols, n_cols, 0.0)
        put(dx_row_ptr, cols, n_cols, y * (dy - s))


def warps_for(block: int, columns_per_warp: int) -> int:
    return min(max(block // columns_per_warp, 4), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    grid = (n_rows,)
    online_softmax_kernel[grid](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps_for(block, 1024)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax from dy and the forward result y; goes to `out` where one is given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=dy.device, dtype=dy.dtype)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    grid = (n_rows,)
    strides = (y.stride(0), dy.stride(0), out.stride(0))
    softmax_backward_kernel[grid](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps_for(block, 512))
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.stride(1) == 0:
            # the gradient of a sum is expanded
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
