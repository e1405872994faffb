# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) `softmax_forward` passes `out.stride(0), x.stride(0)` to `online_softmax_kernel`, whose order is stride_x, stride_y; it should be `x.stride(0), out.stride(0)`: shows where the row strides of x and out differ (padded x or out) and there is more than one row. (2) `load_logits` returns `x.to(tl.float32) * 1.4426950408889634`, so that x is multiplied by log2(e) before the maximum is subtracted; it should be `tl.exp2((x - m) * log2(e))`: large values lose digits (offset 16384, and more so further away; where the compiler makes an fma of the product and the subtraction, values such as -32768 or 1e28 overflow as well).
"""Online softmax to base 2, with a second sweep from the end of the row; its gradient; both for autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def load_logits(row_ptr, cols, n_cols, policy: tl.constexpr):
    """Values of a row in units of log(2), so that exp2 of a difference is exp of the difference in x."""
    x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy=policy)
    return x.to(tl.float32) * 1.4426950408889634


@triton.jit
def load_factor(row_ptr, cols, n_cols, policy: tl.constexpr):
    """Values of a row in fp32, 0 behind its end."""
    value = tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy=policy)
    return value.to(tl.float32)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Maximum and sum of row i from left to right, then its results from right to left."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    n_blocks = tl.cdiv(n_cols, BLOCK)

    m = -float("inf")
    d = 0.0
    for i in range(0, n_blocks):
        z = load_logits(x_row_ptr, i * BLOCK + lanes, n_cols, "evict_last")
        m_new = tl.maximum(m, tl.max(z, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2(m - shift) + tl.sum(tl.exp2(z - shift), axis=0)
        m = m_new

    # The last block was read last, so it is the first to be found in the cache.
    for i in range(0, n_blocks):
        cols = (n_blocks - 1 - i) * BLOCK + lanes
        z = load_logits(x_row_ptr, cols, n_cols, "evict_first")
        y = tl.exp2(z - m) / d
        tl.store(
            y_row_ptr + cols,
            y.to(y_ptr.dtype.element_ty),
            mask=cols < n_cols,
            eviction_policy="evict_first",
        )


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
    """dx = y * (dy - sum of y * dy) in the same two directions."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    n_blocks = tl.cdiv(n_cols, BLOCK)

    s = 0.0
    for i in range(0, n_blocks):
        cols = i * BLOCK + lanes
        dy = load_factor(dy_row_ptr, cols, n_cols, "evict_last")
        y = load_factor(y_row_ptr, cols, n_cols, "evict_last")
        s += tl.sum(y * dy, axis=0)

    for i in range(0, n_blocks):
        cols = (n_blocks - 1 - i) * BLOCK + lanes
        dy = load_factor(dy_row_ptr, cols, n_cols, "evict_first")
        y = load_factor(y_row_ptr, cols, n_cols, "evict_first")
        dx = y * (dy - s)
        tl.store(
            dx_row_ptr + cols,
            dx.to(dx_ptr.dtype.element_ty),
            mask=cols < n_cols,
            eviction_policy="evict_first",
        )


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        out.stride(0),
        x.stride(0),
        BLOCK=block,
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
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
        num_warps=clamp(block // 512, 4, 32),
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
