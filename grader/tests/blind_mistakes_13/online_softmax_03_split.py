# labs/lab2_online_softmax/online_softmax.py | corner | In the partial last block of the forward kernel (under `if whole < n_cols`) the line `d += tl.sum(tl.exp(x - shift), axis=0)` does not bring the old sum to the new maximum; it should be `d = d * tl.exp(m - shift) + tl.sum(...)`, so rows longer than a block whose maximum lies in the partial block are wrong.
"""Softmax by blocks: the whole blocks of a row run without a mask, the rest of the row has one."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = (n_cols // BLOCK) * BLOCK  # columns in whole blocks

    m = -float("inf")
    d = 0.0
    # whole blocks: no mask, so the loads are as wide as possible
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lanes).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    # what is left
    if whole < n_cols:
        cols = whole + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = m_new

    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + lanes).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + start + lanes, y.to(y_ptr.dtype.element_ty))
    if whole < n_cols:
        cols = whole + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i owns row i. Here the mask costs nothing that I could measure, so there is one loop for all."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        keep = lanes < n_cols - start
        dy = tl.load(dy_row_ptr + start + lanes, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes, mask=keep, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        keep = lanes < n_cols - start
        dy = tl.load(dy_row_ptr + start + lanes, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes, mask=keep, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=keep)


def block_and_warps(n_cols: int, widest: int) -> tuple:
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, 4 if block >= 1024 else 1


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    block, warps = block_and_warps(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
