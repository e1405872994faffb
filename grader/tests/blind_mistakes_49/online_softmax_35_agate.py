# labs/lab2_online_softmax/online_softmax.py | contract | In `softmax_backward` `out = dy.new_empty_strided(dy.size(), dy.stride())` gives the new result the row stride of a padded dy; the README asks for a new contiguous matrix, `torch.empty(dy.shape, ...)` or `empty_like`. Shows where dy has gaps between its rows and no `out` is given; the numbers are right.
"""Online softmax and its gradient; the second sweep walks back over the row, from the blocks read last."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LONGEST = 8192


@triton.jit
def power(x):
    """exp(x) by way of exp2."""
    return tl.exp2(x * LOG2E)


@triton.jit
def there_and_back(x_ptr, y_ptr, n_cols, n_blocks, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i in program i."""
    i = tl.program_id(axis=0).to(tl.int64)
    source = x_ptr + i * stride_x
    target = y_ptr + i * stride_y
    lane = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for b in range(n_blocks):
        k = b * BLOCK + lane
        x = tl.load(source + k, mask=k < n_cols, other=-float("inf")).to(tl.float32)
        m_next = tl.maximum(m, tl.max(x, axis=0))
        zero = tl.where(m_next == -float("inf"), 0.0, m_next)
        d = d * power(m - zero) + tl.sum(power(x - zero), axis=0)
        m = m_next
    for b in range(n_blocks):
        k = (n_blocks - 1 - b) * BLOCK + lane
        x = tl.load(source + k, mask=k < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(target + k, (power(x - m) / d).to(y_ptr.dtype.element_ty), mask=k < n_cols)


@triton.jit
def gradient_there_and_back(
    dy_ptr, y_ptr, dx_ptr, n_cols, n_blocks, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx of row i in program i: the sum of y * dy on the way there, dx on the way back."""
    i = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + i * stride_dy
    y_row = y_ptr + i * stride_y
    dx_row = dx_ptr + i * stride_dx
    lane = tl.arange(0, BLOCK)
    s = 0.0
    for b in range(n_blocks):
        k = b * BLOCK + lane
        dy = tl.load(dy_row + k, mask=k < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + k, mask=k < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for b in range(n_blocks):
        k = (n_blocks - 1 - b) * BLOCK + lane
        dy = tl.load(dy_row + k, mask=k < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + k, mask=k < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + k, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=k < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(LONGEST, triton.next_power_of_2(n_cols))
    there_and_back[(n_rows,)](
        x,
        out,
        n_cols,
        triton.cdiv(n_cols, block),
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = dy.new_empty_strided(dy.size(), dy.stride())
    n_rows, n_cols = dy.shape
    block = min(LONGEST, triton.next_power_of_2(n_cols))
    gradient_there_and_back[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        triton.cdiv(n_cols, block),
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x, and y for the gradient."""
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
