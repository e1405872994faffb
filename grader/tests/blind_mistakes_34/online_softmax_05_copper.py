# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel: the factor of the old sum, `tl.exp2(m - shift)`, lacks the multiplication by log2(e) that the other exponents have, so the old sum shrinks too little (2 to the difference instead of e to it) when a later block raises the maximum: rows longer than one block (2048 columns) whose maximum is not in the first block sum to less than 1; should be `tl.exp2((m - shift) * LOG2E)`. (2) online_softmax_kernel: the row numbers `rows` stay int32, and `rows[:, None] * stride_x` and `* stride_y` overflow where rows lie so far apart that a matrix reaches beyond 2**31 elements (wrong addresses, in x or in out); should be `tl.program_id(axis=0).to(tl.int64) * ROWS + ...`.
"""Softmax by powers of two: several short rows, or one long row, in each program."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 16384
TILE = 4096  # elements of a tile


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
    """A tile of ROWS by BLOCK elements goes over ROWS rows, twice."""
    LOG2E: tl.constexpr = 1.4426950408889634
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    x_tile = x_ptr + rows[:, None] * stride_x + cols[None, :]
    y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
    row_mask = (rows < n_rows)[:, None]

    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.full([ROWS], 0.0, tl.float32)
    for start in range(0, n_cols, BLOCK):
        mask = row_mask & (start + cols < n_cols)[None, :]
        x = tl.load(x_tile + start, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        e = tl.exp2((x - shift[:, None]) * LOG2E)
        d = d * tl.exp2(m - shift) + tl.sum(e, axis=1)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        mask = row_mask & (start + cols < n_cols)[None, :]
        x = tl.load(x_tile + start, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m[:, None]) * LOG2E) / d[:, None]
        tl.store(y_tile + start, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    """dx of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + cols
    y_ptrs = y_ptr + row * stride_y + cols
    dx_ptrs = dx_ptr + row * stride_dx + cols
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + cols < n_cols
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = start + cols < n_cols
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptrs + start, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    rows = clamp(TILE // block, 1, 8)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
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
        """y from x."""
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
