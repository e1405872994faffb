# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel works on a tile of (ROWS, BLOCK) and subtracts the sums of its rows, of shape (ROWS,), as `y * (dy - s)`: Triton takes them for (1, ROWS), which does not fit BLOCK columns, so softmax_backward and the gradient of softmax() do not compile (nor run in the interpreter); only with three or four columns, where BLOCK equals ROWS, it runs, and the result is wrong. It should be `y * (dy - s[:, None])`. The forward pass is right
"""Softmax of tiles: each program owns four rows, and goes through them a block of columns at a time."""

import torch
import triton
import triton.language as tl

TILE_ROWS = 4
FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 1024


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
    is_row = rows < n_rows
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y

    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = is_row[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    # Rows past the last one have neither a maximum nor a sum.
    m = tl.where(is_row, m, 0.0)
    d = tl.where(is_row, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = is_row[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_rows + cols[None, :], mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)


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
    is_row = rows < n_rows
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx

    s = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = is_row[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=1)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = is_row[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_rows + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, whose rows may be any number of elements apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, TILE_ROWS),)
    online_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=TILE_ROWS, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, TILE_ROWS),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=TILE_ROWS,
        BLOCK=block,
        num_warps=4,
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
