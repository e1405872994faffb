# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | Both kernels' while loops: `row` goes on by hop (the number of programs), but the row pointers only by one stride (x_row += stride_x, y_row += stride_y, ...), so the second row of each program is the neighbour of its first, and about half of the rows stay unwritten for n_rows >= 3. The pointers should advance by hop * stride, with hop as int64.
"""Softmax and its gradient; a program takes ROWS_EACH rows, one after the other."""

import torch
import triton
import triton.language as tl

ROWS_EACH = 2  # half as many programs to start
WIDEST = 16384


@triton.jit
def softmax_of_row(src, dst, n_cols, BLOCK: tl.constexpr):
    """One row at src, its softmax to dst."""
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        safe = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(dst + cols, (tl.exp(x - m) / d).to(dst.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_of_row(g_src, y_src, dst, n_cols, BLOCK: tl.constexpr):
    """One row of dx to dst."""
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        g = tl.load(g_src + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_src + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(g * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        g = tl.load(g_src + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_src + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dst + cols, (y * (g - s)).to(dst.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program p owns the rows p, p + programs, ..."""
    row = tl.program_id(axis=0).to(tl.int64)
    hop = tl.num_programs(axis=0)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    while row < n_rows:
        softmax_of_row(x_row, y_row, n_cols, BLOCK)
        row += hop
        x_row += stride_x
        y_row += stride_y


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """The same rows as in the forward pass."""
    row = tl.program_id(axis=0).to(tl.int64)
    hop = tl.num_programs(axis=0)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    while row < n_rows:
        gradient_of_row(dy_row, y_row, dx_row, n_cols, BLOCK)
        row += hop
        dy_row += stride_dy
        y_row += stride_y
        dx_row += stride_dx


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, WIDEST)
    warps = 8 if block == WIDEST else clamp(block // 1024, 1, 4)
    grid = (triton.cdiv(n_rows, ROWS_EACH),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, WIDEST)
    grid = (triton.cdiv(n_rows, ROWS_EACH),)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[grid](
        dy, y, out, n_rows, n_cols, *strides, BLOCK=block, num_warps=clamp(block // 512, 4, 32)
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
