# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel: the second sweep puts 1 / d into the exponent of exp2, but takes the natural logarithm of d: `tl.exp2((x - m) * LOG2E - tl.log(d))` is exp(x - m) divided by d to the power 0.693, so each row is too large by the factor d to the power 0.307 and sums to more than 1. Wrong in every row but those with d = 1 (one column, or one value that towers over the row). Should be `tl.log2(d)`.
"""Online softmax that divides in the exponent."""

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
    LOG2E: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One subtraction for each element in place of a division."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    block = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + block
        x = tl.load(
            x_row_ptr + cols,
            mask=cols < n_cols,
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        ref = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - ref) * LOG2E) + tl.sum(tl.exp2((x - ref) * LOG2E), axis=0)
        m = m_new

    log_d = tl.log(d)
    for start in range(0, n_cols, BLOCK):
        cols = start + block
        x = tl.load(
            x_row_ptr + cols,
            mask=cols < n_cols,
            other=-float("inf"),
            eviction_policy="evict_first",
        ).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E - log_d)
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    """s = sum of y * dy over the row, dx = y * (dy - s)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    block = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + block
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + block
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (dy - s) * y
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    num_warps = 8 if block >= 16384 else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        LOG2E=1.4426950408889634,
        BLOCK=block,
        num_warps=num_warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    num_warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=num_warps,
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
