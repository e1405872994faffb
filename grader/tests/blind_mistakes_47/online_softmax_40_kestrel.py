# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `join` (the combine function of tl.reduce in the kernel of softmax_forward), `d_a + d_b * power(-gap)` always rescales the second sum; the sum of the part with the smaller maximum must be rescaled: `d_a * power(m_a - m) + d_b * power(m_b - m)` with m the larger maximum (and 0 for two -inf). Rows are normalised wrongly in nearly all cases; right only where no later lane raises the maximum (constant or descending rows) and for rows of one or two columns. The y of softmax is wrong, too.
"""Softmax over rows of any length: each lane keeps a maximum and a sum, and tl.reduce joins the lanes."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LANES = 4096  # lanes of a program, each with a maximum, a sum and a value


@triton.jit
def power(gap):
    """exp(gap), by way of the exp2 of the hardware."""
    return tl.exp2(gap * LOG2E)


@triton.jit
def join(m_a, d_a, m_b, d_b):
    """Maximum and sum of two parts of a row."""
    gap = tl.where(m_a == m_b, 0.0, tl.abs(m_a - m_b))
    return tl.maximum(m_a, m_b), d_a + d_b * power(-gap)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - top) / total; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(
            x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, x)
        # A lane that has seen -inf alone gets a finite shift.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * power(m - shift) + power(x - shift)
        m = m_new
    top, total = tl.reduce((m, d), 0, join)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        x = tl.load(
            x_ptr + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = power(x - top) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def width(n_cols: int) -> int:
    """The lanes of a program for rows of n_cols columns."""
    return min(triton.next_power_of_2(n_cols), LANES)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); columns contiguous, rows any distance apart."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = width(n_cols)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block == LANES else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = width(n_cols)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block == LANES else 4,
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
