# labs/lab2_online_softmax/online_softmax.py | contract | softmax_forward without `out` allocates with x.new_empty_strided(x.shape, x.stride()), so for an x with padded rows the returned matrix has the row stride of x and is not contiguous; the README asks for a new contiguous matrix, as torch.empty_like(x) gives; numbers are right, and nothing shows for a contiguous x or where `out` is given
"""Online softmax, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    NEG = -float("inf")
    m = -float("inf")
    d = 0.0
    n_blocks = tl.cdiv(n_cols, BLOCK)
    for b in range(0, n_blocks):
        cols = b * BLOCK + tl.arange(0, BLOCK)
        keep = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=keep, other=NEG, eviction_policy="evict_last").to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        if m_new > NEG:
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    r = 1.0 / d
    for b in range(0, n_blocks):
        cols = b * BLOCK + tl.arange(0, BLOCK)
        keep = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=keep, other=NEG, eviction_policy="evict_first").to(tl.float32)
        tl.store(y_row_ptr + cols, (tl.exp(x - m) * r).to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    n_blocks = tl.cdiv(n_cols, BLOCK)
    for b in range(0, n_blocks):
        cols = b * BLOCK + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=keep, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=keep, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for b in range(0, n_blocks):
        cols = b * BLOCK + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=keep, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=keep, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=keep)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty_strided(x.shape, x.stride())
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == 16384 else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty(n_rows, n_cols, dtype=dy.dtype, device=dy.device)
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
