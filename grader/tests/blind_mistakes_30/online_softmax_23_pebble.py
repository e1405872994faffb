# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax saves (x, y), but backward takes `saved[0]`, which is x, as the result: the gradient of softmax() is x * (dy - sum(x * dy)) in every case (NaN where x has -inf); softmax_forward and softmax_backward themselves are right; should be `saved[1]`, or save y alone
"""Online softmax by a fixed number of programs that walk over the rows."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096
PROGRAMS = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    step = tl.num_programs(axis=0)
    offs = tl.arange(0, BLOCK)
    while row < n_rows:
        x_ptrs = x_ptr + row * stride_x + offs
        y_ptrs = y_ptr + row * stride_y + offs
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_ptrs + start, mask=offs + start < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            base = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - base) + tl.sum(tl.exp(x - base), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            keep = offs + start < n_cols
            x = tl.load(x_ptrs + start, mask=keep, other=-float("inf")).to(tl.float32)
            tl.store(y_ptrs + start, tl.exp(x - m) / d, mask=keep)
        row += step


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    step = tl.num_programs(axis=0)
    offs = tl.arange(0, BLOCK)
    while row < n_rows:
        dy_ptrs = dy_ptr + row * stride_dy + offs
        y_ptrs = y_ptr + row * stride_y + offs
        dx_ptrs = dx_ptr + row * stride_dx + offs
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            keep = offs + start < n_cols
            dy = tl.load(dy_ptrs + start, mask=keep, other=0.0).to(tl.float32)
            y = tl.load(y_ptrs + start, mask=keep, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            keep = offs + start < n_cols
            dy = tl.load(dy_ptrs + start, mask=keep, other=0.0).to(tl.float32)
            y = tl.load(y_ptrs + start, mask=keep, other=0.0).to(tl.float32)
            tl.store(dx_ptrs + start, y * (dy - s), mask=keep)
        row += step


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=clamp(triton.next_power_of_2(n_cols), 32, FORWARD_BLOCK),
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=clamp(triton.next_power_of_2(n_cols), 32, BACKWARD_BLOCK),
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        saved = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), saved[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
