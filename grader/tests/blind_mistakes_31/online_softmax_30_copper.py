# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_backward_kernel the first loop moves `dy_ptrs` and `y_ptrs` forward by BLOCK in each turn, and they are not set back to the start of the row before the second loop, which therefore reads dy and y behind the blocks of the row (the next rows, or beyond the matrix) and stores dx computed from those. softmax_backward and the gradient of softmax are wrong, or read out of bounds, in every case. The pointers should be formed again from the row's start before the second loop. softmax_forward does so and is right.
"""Online softmax with pointers that walk along the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)

    x_ptrs = x_ptr + row * stride_x + lanes
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs, mask=lanes < n_cols - start, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        anchor = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = tl.sum(tl.exp(x - anchor), axis=0) + d * tl.exp(m - anchor)
        m = m_new
        x_ptrs += BLOCK

    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    for start in range(0, n_cols, BLOCK):
        live = lanes < n_cols - start
        x = tl.load(x_ptrs, mask=live, other=-float("inf")).to(tl.float32)
        tl.store(y_ptrs, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=live)
        x_ptrs += BLOCK
        y_ptrs += BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dx + lanes

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        live = lanes < n_cols - start
        dy = tl.load(dy_ptrs, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs, mask=live, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_ptrs += BLOCK
        y_ptrs += BLOCK

    for start in range(0, n_cols, BLOCK):
        live = lanes < n_cols - start
        dy = tl.load(dy_ptrs, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs, mask=live, other=0.0).to(tl.float32)
        tl.store(dx_ptrs, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=live)
        dy_ptrs += BLOCK
        y_ptrs += BLOCK
        dx_ptrs += BLOCK


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols)."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 4)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
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
        num_warps=clamp(block // 512, 1, 4),
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
