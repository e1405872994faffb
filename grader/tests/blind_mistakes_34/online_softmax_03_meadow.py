# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel: a program has 4 rows, and `tl.sum(tl.exp(x - shift[:, None]))` has no axis, so it adds the terms of all 4 rows into one number, which each row gets as its own sum: d is too large, and each row sums to less than 1 (about a quarter). Wrong in every case with more than one row; right only for a row that is alone in its program (a matrix of one row, the last row of 5, 29, 37, 149). Should be `tl.sum(..., axis=1)`.
"""Row softmax in tiles of four rows."""

import torch
import triton
import triton.language as tl

ROWS = 4
WIDEST_TILE = 4096
BACKWARD_BLOCK = 16384


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
    """A tile of ROWS rows walks over the columns; m and d have one entry for each row."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = rows < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = live[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]))
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = live[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


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
    """dx = y * (dy - sum of y * dy), one row for each program."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - total)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    block = clamp(triton.next_power_of_2(n_cols), 16, WIDEST_TILE)
    grid = (triton.cdiv(n_rows, ROWS),)
    online_softmax_kernel[grid](
        x, y, n_rows, n_cols, x.stride(0), y.stride(0), ROWS=ROWS, BLOCK=block, num_warps=8
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = dy.shape
    dx = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device) if out is None else out
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
    )
    return dx


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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
