# labs/lab2_online_softmax/online_softmax.py | corner | The forward kernel folds the sum into the shift, `lse = m + tl.log(d)`, and stores `tl.exp(x - lse)`. Where the maximum is far from 0 (rows around 16384, values of thousands, rows near the lowest number), m + log(d) is rounded to the spacing of m in fp32, and log(d) loses its digits or vanishes: whole rows are off by a common factor and do not sum to 1 (at -1e27 each largest value gives 1 instead of its share). Rows with a small maximum are right. It should be `tl.exp(x - m) / d` (or tl.exp((x - m) - tl.log(d))).
"""Softmax over rows with a running maximum, and its gradient.

Blocks that fill a row exactly need no masks, so that is a case of its own at compile time.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def load_logits(row_ptr, cols, n_cols, EXACT: tl.constexpr):
    if EXACT:
        x = tl.load(row_ptr + cols)
    else:
        x = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"))
    return x.to(tl.float32)


@triton.jit
def load_factor(row_ptr, cols, n_cols, EXACT: tl.constexpr):
    if EXACT:
        v = tl.load(row_ptr + cols)
    else:
        v = tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0)
    return v.to(tl.float32)


@triton.jit
def store_row(row_ptr, cols, values, n_cols, EXACT: tl.constexpr):
    values = values.to(row_ptr.dtype.element_ty)
    if EXACT:
        tl.store(row_ptr + cols, values)
    else:
        tl.store(row_ptr + cols, values, mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, EXACT: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_logits(x_row, start + tl.arange(0, BLOCK), n_cols, EXACT)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    lse = m + tl.log(d)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_logits(x_row, cols, n_cols, EXACT)
        store_row(y_row, cols, tl.exp(x - lse), n_cols, EXACT)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, EXACT: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load_factor(dy_row, cols, n_cols, EXACT)
        y = load_factor(y_row, cols, n_cols, EXACT)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load_factor(dy_row, cols, n_cols, EXACT)
        y = load_factor(y_row, cols, n_cols, EXACT)
        store_row(dx_row, cols, y * (dy - s), n_cols, EXACT)


def block_for(n_cols: int, widest: int) -> int:
    return min(triton.next_power_of_2(n_cols), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension, into `out` where it is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = block_for(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0),
        BLOCK=block, EXACT=n_cols % block == 0, num_warps=8 if block > 4096 else 4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx = y * (dy - sum(y * dy)), row by row."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = block_for(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, EXACT=n_cols % block == 0, num_warps=8 if block > 2048 else 4,
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
    """Differentiable softmax over the last dimension."""
    return OnlineSoftmax.apply(x)
