# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel works in base 2, tl.exp2((x - m) * LOG2E), and brings the sum into the exponent of the result: y = tl.exp2((x - m) * LOG2E - tl.log(d)), with the natural logarithm in place of the logarithm to base 2. Each row is too large by d ** (1 - ln 2), so rows sum to more than 1 wherever d is not 1, that is in all cases but rows of one column or with one value far above the others. It should be tl.log2(d).
"""Softmax in powers of two, which the GPU computes faster than those of e."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) is exp2(t * LOG2E)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of one row; the division by d is a subtraction in the exponent."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptrs = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + tl.arange(0, BLOCK) < n_cols
        x = tl.load(x_ptrs + start, mask=inside, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(top == -float("inf"), 0.0, top)
        d = d * tl.exp2((m - base) * LOG2E) + tl.sum(tl.exp2((x - base) * LOG2E), axis=0)
        m = top

    log_d = tl.log(d)
    for start in range(0, n_cols, BLOCK):
        inside = start + tl.arange(0, BLOCK) < n_cols
        x = tl.load(x_ptrs + start, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E - log_d)
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)) of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptrs = dy_ptr + row * stride_dy + tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    dx_ptrs = dx_ptr + row * stride_dx + tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + tl.arange(0, BLOCK) < n_cols
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + tl.arange(0, BLOCK) < n_cols
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    assert out.shape == x.shape, f"out is {out.shape}, x is {x.shape}"
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 2048, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    assert dy.shape == y.shape, f"dy is {dy.shape}, y is {y.shape}"
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
        num_warps=clamp(block // 512, 1, 16),
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
