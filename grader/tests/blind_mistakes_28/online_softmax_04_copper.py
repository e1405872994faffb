# labs/lab2_online_softmax/online_softmax.py | error | online_softmax_kernel, second loop: `tl.exp(x - m[:, None]) * scale` multiplies a [ROWS, BLOCK] tile by the [ROWS] vector `scale`, which broadcasts along the columns (4 against at least 16): shapes do not fit, and the kernel does not compile in any case; should be scale[:, None]
"""Softmax with tiles of four rows, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

ROWS = 4
WIDEST = 4096
LOWEST = tl.constexpr(-3.0e38)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i owns rows i * ROWS to (i + 1) * ROWS - 1."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    alive = (rows < n_rows)[:, None]
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    m = tl.full([ROWS], LOWEST, dtype=tl.float32)
    d = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        inside = alive & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new[:, None]), axis=1)
        m = m_new
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        inside = alive & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) * scale
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    alive = (rows < n_rows)[:, None]
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    s = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        inside = alive & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        inside = alive & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def width(n_cols: int) -> int:
    return min(max(triton.next_power_of_2(n_cols), 16), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(triton.cdiv(n_rows, ROWS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=width(n_cols), num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        BLOCK=width(n_cols),
        num_warps=16,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
