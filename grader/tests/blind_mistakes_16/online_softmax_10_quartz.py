# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel adds y * dy lane by lane into acc and never reduces it: `dx = y * (dy - acc)` subtracts from each column only the sum of its own lane. It should be y * (dy - tl.sum(acc, axis=0)).
"""Online softmax in base 2, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 4096
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """exp(a) is computed as exp2(a * log2(e))."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=keep, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - base) * LOG2E) + tl.sum(tl.exp2((x - base) * LOG2E), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=keep, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - <y, dy>)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        acc += y * dy
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=keep, other=0.0).to(tl.float32)
        dx = y * (dy - acc)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=keep)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.size(0), x.size(1)
    block = min(FORWARD_BLOCK, triton.next_power_of_2(cols))
    online_softmax_kernel[(rows,)](
        x, out, cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 2048, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = dy.size(0), dy.size(1)
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(cols))
    softmax_backward_kernel[(rows,)](
        dy,
        y,
        out,
        cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 8),
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
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
