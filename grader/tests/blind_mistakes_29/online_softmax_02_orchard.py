# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax of rows: short rows in one block, long rows by merging (maximum, sum) pairs of their blocks."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def finite(m):
    """m, or 0 where there was nothing but -inf so far."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def merge(m_a, d_a, m_b, d_b):
    """The pair of two parts of a row, from the pair of each."""
    m = tl.maximum(m_a, m_b)
    shift = finite(m)
    return m, d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)


@triton.jit
def whole_row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """A row that fits in one block is read once and stays in registers."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """A row of several blocks."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(
            x_row_ptr + start + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_block = tl.max(x, axis=0)
        d_block = tl.sum(tl.exp(x - finite(m_block)), axis=0)
        m, d = merge(m, d, m_block, d_block)

    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(
            x_row_ptr + start + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    products = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_row_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_row_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    if n_cols <= block:
        whole_row_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
        )
    else:
        online_softmax_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=clamp(block // 512, 4, 32)
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
