# labs/lab2_online_softmax/online_softmax.py | error | In online_softmax_kernel, second loop, `x - m` subtracts the (ROWS,) vector m from the (ROWS, BLOCK) tile without [:, None]; the shapes (4, BLOCK >= 16) and (4,) do not broadcast, so the kernel does not compile, and the interpreter raises as well. It should be x - m[:, None].
"""Softmax with four rows per program: a tile is ROWS x BLOCK, and m and d are vectors with one entry per row."""

import torch
import triton
import triton.language as tl

ROWS = 4
WIDEST = 2048


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    x_rows = x_ptr + (rows * stride_x)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]
    m = tl.full((ROWS,), -float("inf"), tl.float32)
    d = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        x = tl.load(x_rows + cols, mask=row_ok & (cols < n_cols), other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        ok = row_ok & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=ok, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row_ok = (rows < n_rows)[:, None]
    dy_rows = dy_ptr + (rows * stride_dy)[:, None]
    y_rows = y_ptr + (rows * stride_y)[:, None]
    dx_rows = dx_ptr + (rows * stride_dx)[:, None]
    s = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, BLOCK):
        cols = (start + tl.arange(0, BLOCK))[None, :]
        ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=ok, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=ok)


def tile_width(n_cols: int) -> int:
    return min(max(triton.next_power_of_2(n_cols), 16), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(triton.cdiv(n_rows, ROWS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, BLOCK=tile_width(n_cols), num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(triton.cdiv(n_rows, ROWS),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        ROWS=ROWS, BLOCK=tile_width(n_cols), num_warps=8,
    )  # fmt: skip
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
