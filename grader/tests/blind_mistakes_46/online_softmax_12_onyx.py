# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `OnlineSoftmax.backward` calls `softmax_backward(dy, softmax_forward(kept), out=dx)`, but `kept` is already the result y (forward saves `result`), so the gradient is computed from the softmax of the softmax; it should be `softmax_backward(dy, kept, out=dx)`. The gradient of `softmax` is wrong in all cases but rows of one column or of equal values; y, `softmax_forward` and `softmax_backward` are right.
"""Online softmax with exp2, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def fold(m, d, x):
    """The maximum and the sum after one more block, and the sum is relative to the new maximum."""
    log2e: tl.constexpr = 1.4426950408889634
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d = d * tl.exp2((m - shift) * log2e) + tl.sum(tl.exp2((x - shift) * log2e), axis=0)
    return m_new, d


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    log2e: tl.constexpr = 1.4426950408889634
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    offsets = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = offsets < n_cols - start
        x = tl.load(x_ptr + start + offsets, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        m, d = fold(m, d, x.to(tl.float32))
    inverse = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        mask = offsets < n_cols - start
        x = tl.load(x_ptr + start + offsets, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - m) * log2e) * inverse
        tl.store(
            y_ptr + start + offsets, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    offsets = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = offsets < n_cols - start
        dy = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = offsets < n_cols - start
        dy = tl.load(dy_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + start + offsets, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(
            dx_ptr + start + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 16 if block == 16384 else 8 if block == 8192 else 4
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        num_warps=min(max(block // 512, 4), 32),
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
        (kept,) = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
        return softmax_backward(dy, softmax_forward(kept), out=dx)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
