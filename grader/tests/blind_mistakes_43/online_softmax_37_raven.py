# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward, host: `warps = clamp(triton.cdiv(n_cols, 512), 4, 32)` is taken from the number of columns, not from the block, and need not be a power of two, which Triton requires of num_warps; it should be `clamp(block // 512, 4, 32)`. Raises for example for 2600 columns and for 3001 (6 warps); right for up to 2048 columns, for 4096, and from 15873 on.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i of y by program i. Pointers walk along the row; `left` counts the columns that are left."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lanes
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        x = tl.load(x_ptrs, mask=lanes < left, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_ptrs += BLOCK
    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        x = tl.load(x_ptrs, mask=lanes < left, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=lanes < left, eviction_policy="evict_first")
        x_ptrs += BLOCK
        y_ptrs += BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Row i of dx by program i, in the same way."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        dy = tl.load(dy_ptrs, mask=lanes < left, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs, mask=lanes < left, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_ptrs += BLOCK
        y_ptrs += BLOCK
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dx + lanes
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        dy = tl.load(dy_ptrs, mask=lanes < left, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptrs, mask=lanes < left, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_ptrs, dx, mask=lanes < left, eviction_policy="evict_first")
        dy_ptrs += BLOCK
        y_ptrs += BLOCK
        dx_ptrs += BLOCK


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    # Few warps, so that several rows share a multiprocessor.
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    # One warp for each 512 columns: twice the values of the forward pass are alive.
    warps = clamp(triton.cdiv(n_cols, 512), 4, 32)
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
