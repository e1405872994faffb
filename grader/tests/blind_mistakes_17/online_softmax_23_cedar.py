# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel loads through a block pointer with other=-inf, in the first loop; Triton refuses `mask` and `other` for block pointers, so every forward call raises an error. It should load with boundary_check alone and put -inf in the lanes past the end by tl.where.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i and moves two block pointers along it."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_block = tl.make_block_ptr(
        base=x_ptr + row * stride_x, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    y_block = tl.make_block_ptr(
        base=y_ptr + row * stride_y, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    x_first = x_block
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_block = tl.advance(x_block, (BLOCK,))
    x_block = x_first
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_block, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_block = tl.advance(x_block, (BLOCK,))
        y_block = tl.advance(y_block, (BLOCK,))


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
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        ok = cols < n_cols
        g = tl.load(dy_row_ptr + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=ok, other=0.0).to(tl.float32)
        dot += tl.sum(g * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        ok = cols < n_cols
        g = tl.load(dy_row_ptr + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (g - dot)).to(dx_ptr.dtype.element_ty), mask=ok)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; see the README."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        result = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
