# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) The constant that turns exp into exp2 in the forward kernel is 1.4426 where log2(e) = 1.442695: every exponent is 0.0066 percent too small, so fp32 rows are slightly too flat (they still sum to 1), by far more than fp32 rounding wherever a row has several different values; fp16 and bf16 hide it. It should be 1.4426950408889634. (2) Row offsets are computed as `(row * x_stride).to(tl.int64)` and `(row * y_stride).to(tl.int64)`: the product is int32 and wraps before it is converted, so rows beyond 2^31 elements are read and written at wrong places. The row number should be int64 before it is multiplied.
"""Online softmax: max and sum in one sweep, the result in a second one, and the gradient in two more."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192

TO_BASE_2 = tl.constexpr(1.4426)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, x_stride, y_stride, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0)
    x_row = x_ptr + (row * x_stride).to(tl.int64)
    y_row = y_ptr + (row * y_stride).to(tl.int64)
    block = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = block < n_cols - start
        x = tl.load(x_row + start + block, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # exp(-inf - 0) is 0: nothing has been seen yet.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp2((m - shift) * TO_BASE_2)
        d += tl.sum(tl.exp2((x - shift) * TO_BASE_2), axis=0)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        mask = block < n_cols - start
        x = tl.load(x_row + start + block, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - m) * TO_BASE_2) / d
        tl.store(y_row + start + block, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, dy_stride, y_stride, dx_stride, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * dy_stride
    y_row = y_ptr + row * y_stride
    dx_row = dx_ptr + row * dx_stride
    block = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = block < n_cols - start
        dy = tl.load(dy_row + start + block, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + start + block, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    for start in range(0, n_cols, BLOCK):
        mask = block < n_cols - start
        dy = tl.load(dy_row + start + block, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + start + block, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + start + block, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 8)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 16)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
