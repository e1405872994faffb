# labs/lab2_online_softmax/online_softmax.py | right | `tl.reduce` over pairs (maximum, sum) with an own operator, a finite number (-1e32, below all values that the README allows) in place of -inf, tiles whose rows are P apart (P programs), and a path that reads a row once where it fits a block (`triton.heuristics`). All sentences of the README are kept.
"""Softmax over rows: pairs (maximum, sum) of tiles under one associative operator, with its gradient."""

import torch
import triton
import triton.language as tl

WIDEST = 4096
TILE = 2048  # elements of a tile of several rows
# Lower than any finite value of a row. It takes the place of -inf, so that differences are never NaN: what is
# counted at this height before the first finite value is brought to 0 by exp(LOW - m).
LOW = tl.constexpr(-1.0e32)


@triton.jit
def join(m_a, d_a, m_b, d_b):
    m = tl.maximum(m_a, m_b)
    return m, d_a * tl.exp(m_a - m) + d_b * tl.exp(m_b - m)


@triton.jit
def lifted(ptrs, inside):
    """A tile in fp32, LOW where it is -inf and where nothing is."""
    x = tl.load(ptrs, mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside & (x > LOW), x, LOW)


@triton.heuristics({"ONCE": lambda args: args["n_cols"] <= args["COLS"]})
@triton.jit
def joined_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    ONCE: tl.constexpr,
):
    """Program p of P owns rows p, p + P, p + 2 P and so on, ROWS of them."""
    rows = tl.program_id(axis=0).to(tl.int64) + tl.num_programs(axis=0) * tl.arange(0, ROWS).to(tl.int64)
    lanes = tl.arange(0, COLS)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    real = rows[:, None] < n_rows
    if ONCE:
        inside = real & (lanes[None, :] < n_cols)
        x = lifted(x_rows + lanes[None, :], inside)
        m = tl.max(x, axis=1)
        p = tl.where(inside, tl.exp(x - m[:, None]), 0.0)
        d = tl.where(rows < n_rows, tl.sum(p, axis=1), 1.0)
        tl.store(y_rows + lanes[None, :], (p / d[:, None]).to(y_ptr.dtype.element_ty), mask=inside)
    else:
        m = tl.full((ROWS,), LOW, dtype=tl.float32)
        d = tl.zeros((ROWS,), dtype=tl.float32)
        for start in range(0, n_cols, COLS):
            cols = start + lanes[None, :]
            inside = real & (cols < n_cols)
            x = lifted(x_rows + cols, inside)
            # One column by itself has the maximum x and the sum exp(x - x) = 1.
            m_tile, d_tile = tl.reduce((x, tl.where(inside, 1.0, 0.0)), 1, join)
            m, d = join(m, d, m_tile, d_tile)
        d = tl.where(rows < n_rows, d, 1.0)
        for start in range(0, n_cols, COLS):
            cols = start + lanes[None, :]
            inside = real & (cols < n_cols)
            y = tl.exp(lifted(x_rows + cols, inside) - m[:, None]) / d[:, None]
            tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products += dy * tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (dy - s) * tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    cols = min(triton.next_power_of_2(n_cols), WIDEST)
    rows = max(1, min(TILE // cols, 16))
    joined_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=8 if cols == WIDEST else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    warps = 8 if block == WIDEST else 4
    gradient_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
