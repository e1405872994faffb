# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward_kernel works on tiles of (ROWS, BLOCK), and `s` has the shape (ROWS,): in `grad = prob * (up - s)` the sum is broadcast along the last dimension, (1, ROWS) against (ROWS, BLOCK), and 4 does not go with BLOCK >= 128, so the backward kernel does not compile (nor run in the interpreter) in any case; softmax_forward is right. It should be up - s[:, None].
"""Softmax over rows of any length and its gradient, several rows at a time in tiles of (ROWS, BLOCK)."""

import torch
import triton
import triton.language as tl

ROWS = 4
WIDEST_FORWARD = 4096
WIDEST_BACKWARD = 2048


@triton.jit
def read_tile(first_ptr, rows, cols, n_rows, n_cols, stride, other):
    """A tile in fp32, with `other` past the last row and the last column."""
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(first_ptr + rows[:, None] * stride + cols[None, :], mask=mask, other=other).to(tl.float32)


@triton.jit
def write_tile(first_ptr, rows, cols, n_rows, n_cols, stride, tile):
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(first_ptr + rows[:, None] * stride + cols[None, :], tile.to(first_ptr.dtype.element_ty), mask=mask)


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
    """Program i owns the rows from i * ROWS on; m and d have one value for each of them."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    m = tl.full([ROWS], -float("inf"), dtype=tl.float32)
    d = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = read_tile(x_ptr, rows, cols, n_rows, n_cols, stride_x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    # Rows past the last one have seen -inf alone: any finite numbers will do, nothing of them is stored.
    m = tl.where(rows < n_rows, m, 0.0)
    d = tl.where(rows < n_rows, d, 1.0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = read_tile(x_ptr, rows, cols, n_rows, n_cols, stride_x, -float("inf"))
        y = tl.exp(x - m[:, None]) / d[:, None]
        write_tile(y_ptr, rows, cols, n_rows, n_cols, stride_y, y)


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
    s = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        up = read_tile(dy_ptr, rows, cols, n_rows, n_cols, stride_dy, 0.0)
        prob = read_tile(y_ptr, rows, cols, n_rows, n_cols, stride_y, 0.0)
        s += tl.sum(prob * up, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        up = read_tile(dy_ptr, rows, cols, n_rows, n_cols, stride_dy, 0.0)
        prob = read_tile(y_ptr, rows, cols, n_rows, n_cols, stride_y, 0.0)
        grad = prob * (up - s)
        write_tile(dx_ptr, rows, cols, n_rows, n_cols, stride_dx, grad)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = clamp(triton.next_power_of_2(n_cols), 128, WIDEST_FORWARD)
    online_softmax_kernel[(triton.cdiv(n_rows, ROWS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=width,
        num_warps=clamp(width // 256, 2, 16),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width = clamp(triton.next_power_of_2(n_cols), 128, WIDEST_BACKWARD)
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
        BLOCK=width,
        num_warps=clamp(width // 128, 2, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
