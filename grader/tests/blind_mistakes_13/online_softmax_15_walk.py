# labs/lab2_online_softmax/online_softmax.py | two mistakes | softmax_forward passes `row_step = x.stride(0)` for both row steps of the launch, so a result whose rows lie farther apart or closer than those of x goes to wrong places; the second should be `out.stride(0)`. In the backward kernel `dx = y * dy - s` leaves s without the factor y; it should be `y * (dy - s)`.
"""Softmax over rows of any length; the pointers walk along the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    x_row_step,
    y_row_step,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)

    # pass 1: statistics
    x_ptrs = x_ptr + row * x_row_step + lanes
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start  # columns that are left
        x = tl.load(x_ptrs, mask=lanes < left, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_ptrs += BLOCK

    # pass 2: result
    x_ptrs = x_ptr + row * x_row_step + lanes
    y_ptrs = y_ptr + row * y_row_step + lanes
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        x = tl.load(x_ptrs, mask=lanes < left, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=lanes < left)
        x_ptrs += BLOCK
        y_ptrs += BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    dy_row_step,
    y_row_step,
    dx_row_step,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)

    # pass 1: s = sum of y * dy
    dy_ptrs = dy_ptr + row * dy_row_step + lanes
    y_ptrs = y_ptr + row * y_row_step + lanes
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        dy = tl.load(dy_ptrs, mask=lanes < left, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs, mask=lanes < left, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
        dy_ptrs += BLOCK
        y_ptrs += BLOCK

    # pass 2: result
    dy_ptrs = dy_ptr + row * dy_row_step + lanes
    y_ptrs = y_ptr + row * y_row_step + lanes
    dx_ptrs = dx_ptr + row * dx_row_step + lanes
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        dy = tl.load(dy_ptrs, mask=lanes < left, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs, mask=lanes < left, other=0.0).to(tl.float32)
        dx = y * dy - s
        tl.store(dx_ptrs, dx.to(dx_ptr.dtype.element_ty), mask=lanes < left)
        dy_ptrs += BLOCK
        y_ptrs += BLOCK
        dx_ptrs += BLOCK


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    row_step = x.stride(0)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, row_step, row_step, BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
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
