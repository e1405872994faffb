# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In softmax_backward_kernel, `y * dy - s` subtracts s itself in place of y * s: softmax_backward and the dx of softmax are wrong in nearly every case (all rows with s != 0 and more than one column). Should be `y * (dy - s)`. (2) In softmax_forward, `rows_each = n_rows // programs` rounds down: with more than 132 rows whose number is no multiple of 132, the last n_rows % 132 rows belong to no program and are never written (149 rows, 1000 rows). Should be `triton.cdiv(n_rows, programs)`; the kernel's `mine` already ends at the last row.
"""Online softmax where each program goes through a run of neighbouring rows, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
PROGRAMS = 132  # of the forward pass: one for each multiprocessor of an H200

BOTTOM = tl.constexpr(-1.0e30)  # below every finite value that occurs


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    rows_each,  # rows of a program
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(axis=0).to(tl.int64) * rows_each
    mine = tl.minimum(n_rows - first, rows_each)
    x_row = x_ptr + first * stride_x
    y_row = y_ptr + first * stride_y
    for _ in range(0, mine):
        m = BOTTOM
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        x_row += stride_x
        y_row += stride_y


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
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * dy - s
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    programs = min(n_rows, PROGRAMS)
    rows_each = n_rows // programs
    online_softmax_kernel[(programs,)](
        x, out, n_rows, n_cols, rows_each, x.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 512, 1, 16),
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for x of softmax(x) = y, given the gradient dy for y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 512, 4, 32),
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two as one differentiable function."""

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
