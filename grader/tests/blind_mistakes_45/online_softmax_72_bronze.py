# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `softmax_rows_kernel`, `log_d = tl.log(d)` is a natural logarithm, but it is subtracted in an exponent of 2: `y = tl.exp2(exponent(x.to(tl.float32), m) - log_d)`; it should be `tl.log2(d)`. Rows sum to d ** (1 - ln 2), that is to more than 1, wherever d is not 1 (nearly everywhere; right for one column or where one value towers over its row).
"""Softmax over the rows of a matrix in powers of two: no division, one exponent for each element."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def exponent(x, m):
    """x - m in units of log 2; the difference first, because large x have no digits to lose."""
    return (x - m) * LOG2E


@triton.jit
def softmax_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = 2 ** (exponent of x[i, :] less that of the sum); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    offsets = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + offsets
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2(exponent(m, shift)) + tl.sum(tl.exp2(exponent(x, shift)), axis=0)
        m = m_new

    # d is at least 1, so its logarithm is at least 0.
    log_d = tl.log(d)
    for start in range(0, n_cols, BLOCK):
        cols = start + offsets
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2(exponent(x.to(tl.float32), m) - log_d)
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def gradient_rows_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    offsets = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + offsets
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + offsets
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 1 if block <= 1024 else 4 if block <= 4096 else 8
    softmax_rows_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = 4 if block <= 2048 else 8 if block <= 4096 else 16
    gradient_rows_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; the gradient needs y alone."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy, which may have any layout."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
