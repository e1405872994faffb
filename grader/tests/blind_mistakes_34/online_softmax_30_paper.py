# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel, second loop, `y * (dy - s)`: dy is a tile of shape (ROWS, BLOCK) and s has the shape (ROWS,), which Triton extends to (1, ROWS), not to (ROWS, 1). ROWS is 4 and BLOCK at least 16, so the shapes do not fit, and the kernel does not compile (nor run in the interpreter) in any case of softmax_backward and of the gradient of softmax(). It should be `s[:, None]`. The forward pass is right.
"""Softmax and its gradient, four rows to a program."""

import torch
import triton
import triton.language as tl

ROWS = 4
FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = rows[:, None] < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        x = tl.load(x_rows + cols, mask=row_ok & (cols < n_cols), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # rows past the end have no finite value: keep them out of inf - inf and of 0 / 0
    m = tl.where(m == -float("inf"), 0.0, m)
    d = tl.where(d == 0.0, 1.0, d)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        mask = row_ok & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = rows[:, None] < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    s = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        mask = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        mask = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(triton.cdiv(n_rows, ROWS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK),
        num_warps=8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(triton.cdiv(n_rows, ROWS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK),
        num_warps=8,
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
