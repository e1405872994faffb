# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel walks dy_at and y_at forward by BLOCK in the first loop and does not set them back to the start of the row before the second, so the second loop reads dy and y behind the row (the next rows, or memory past the end of the matrix) and dx is computed from foreign numbers. softmax_backward and the gradient of softmax() are wrong in every case; right is to set dy_at and y_at anew before the second loop, as online_softmax_kernel does with x_at.
"""Softmax of long rows with pointers that walk along the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)

    x_at = x_ptr + row * stride_x + lanes
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        x = tl.load(x_at, mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_at += BLOCK

    x_at = x_ptr + row * stride_x + lanes
    y_at = y_ptr + row * stride_y + lanes
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        x = tl.load(x_at, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=inside)
        x_at += BLOCK
        y_at += BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)

    dy_at = dy_ptr + row * stride_dy + lanes
    y_at = y_ptr + row * stride_y + lanes
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        dy = tl.load(dy_at, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_at, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_at += BLOCK
        y_at += BLOCK

    dx_at = dx_ptr + row * stride_dx + lanes
    for start in range(0, n_cols, BLOCK):
        inside = lanes < n_cols - start
        dy = tl.load(dy_at, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_at, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_at, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dy_at += BLOCK
        y_at += BLOCK
        dx_at += BLOCK


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, any row stride."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 4)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y, any row strides."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 256, 1, 8),
    )  # fmt: skip
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
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
