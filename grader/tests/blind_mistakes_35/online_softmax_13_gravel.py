# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In rows_forward a program takes four rows one after the other, but m and d are set to -inf and 0 only once, before the loop over the rows: each later row of a program goes on with the maximum and the sum of the rows before it. So in every matrix of more than one row, all rows but each program's first (rows 0, 4, 8, ...) sum to less than 1, by a share that depends on the rows before them (hidden only where a row's maximum is far above those before it). m and d must be set inside the loop over r.
"""Softmax and its gradient; each program takes a few rows that follow one another."""

import torch
import triton
import triton.language as tl

ROWS_EACH = 4
WIDEST_FORWARD = 8192
WIDEST_BACKWARD = 4096


@triton.jit
def rows_forward(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i owns rows i * ROWS to (i + 1) * ROWS - 1."""
    first_row = tl.program_id(axis=0).to(tl.int64) * ROWS
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")  # maximum of the columns seen so far
    d = 0.0  # sum of exp(x - m) over the columns seen so far
    for r in range(0, ROWS):
        row = first_row + r
        if row < n_rows:
            x_row_ptr = x_ptr + row * stride_x
            y_row_ptr = y_ptr + row * stride_y
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                m_new = tl.maximum(m, tl.max(x, axis=0))
                shift = tl.where(m_new == -float("inf"), 0.0, m_new)
                d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
                m = m_new
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
                y = tl.exp(x - m) / d
                tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def rows_backward(
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
    """Program i owns rows i * ROWS to (i + 1) * ROWS - 1."""
    first_row = tl.program_id(axis=0).to(tl.int64) * ROWS
    lanes = tl.arange(0, BLOCK)
    for r in range(0, ROWS):
        row = first_row + r
        if row < n_rows:
            dy_row_ptr = dy_ptr + row * stride_dy
            y_row_ptr = y_ptr + row * stride_y
            dx_row_ptr = dx_ptr + row * stride_dx
            acc = tl.zeros((BLOCK,), dtype=tl.float32)
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                acc += dy * y
            s = tl.sum(acc, axis=0)
            for start in range(0, n_cols, BLOCK):
                cols = start + lanes
                dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
                dx = y * (dy - s)
                tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST_FORWARD)
    rows_forward[(triton.cdiv(n_rows, ROWS_EACH),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS_EACH,
        BLOCK=block,
        num_warps=min(8, max(1, block // 512)),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST_BACKWARD)
    rows_backward[(triton.cdiv(n_rows, ROWS_EACH),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS_EACH,
        BLOCK=block,
        num_warps=min(8, max(1, block // 512)),
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
