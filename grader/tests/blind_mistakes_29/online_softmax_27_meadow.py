# labs/lab2_online_softmax/online_softmax.py | contract | softmax_backward: without out the result is made by torch.empty_strided with the strides of dy, so for a dy with padded rows a padded matrix is returned, whose numbers are right; shows where dy is not contiguous and out is not given; should be a new contiguous matrix, as torch.empty(dy.shape, ...) makes
"""Softmax over long rows in one kernel, and its gradient in another."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
MINUS_INF = tl.constexpr(-float("inf"))


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptrs = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = tl.arange(0, BLOCK) < n_cols - start
        x = tl.load(x_ptrs + start, mask=mask, other=MINUS_INF).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == MINUS_INF, 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        mask = tl.arange(0, BLOCK) < n_cols - start
        x = tl.load(x_ptrs + start, mask=mask, other=MINUS_INF).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptrs = dy_ptr + row * stride_dy + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    dx_ptrs = dx_ptr + row * stride_dx + tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = tl.arange(0, BLOCK) < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = tl.arange(0, BLOCK) < n_cols - start
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows may be any number of elements apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 4) if block < FORWARD_BLOCK else 8
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; rows may be any number of elements apart."""
    if out is None:
        out = torch.empty_strided(dy.shape, dy.stride(), dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
