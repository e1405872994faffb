# labs/lab2_online_softmax/online_softmax.py | error | In softmax_backward_kernel, `dx = y * (dy - s)` subtracts s of shape (GROUP,) from a (GROUP, BLOCK) tile, shapes that do not broadcast, so the kernel does not compile; it should be `dy - s[:, None]`.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384  # columns of a program of the forward pass, which has one row
BACKWARD_BLOCK = 1024  # columns of a tile of the backward pass, which has GROUP rows
GROUP = 8


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program k owns GROUP rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * GROUP + tl.arange(0, GROUP)
    lanes = tl.arange(0, BLOCK)
    row_mask = rows[:, None] < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx

    # products are added up element by element; one reduction per row at the end
    products = tl.zeros((GROUP, BLOCK), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + lanes)[None, :]
        mask = row_mask & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=1)

    for start in range(0, n_cols, BLOCK):
        cols = (start + lanes)[None, :]
        mask = row_mask & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 8)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, GROUP),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        GROUP=GROUP,
        BLOCK=block,
        num_warps=8,
    )
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
