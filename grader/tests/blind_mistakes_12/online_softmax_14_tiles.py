# labs/lab2_online_softmax/online_softmax.py | right | nothing is wrong: a program takes four rows as a 2D tile, the last program has a mask for rows, and rows that do not exist get d = 1 so that no NaN arises
"""Softmax of several rows at a time: tiles of ROWS x COLS."""

import torch
import triton
import triton.language as tl

ROWS = 4
MAX_COLS = 2048


@triton.jit
def softmax_tile_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    row_ok = (rows < n_rows)[:, None]

    m = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        ok = row_ok & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=ok, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    # rows behind the end of the matrix have seen nothing
    m = tl.where(d > 0.0, m, 0.0)
    d = tl.where(d > 0.0, d, 1.0)

    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        ok = row_ok & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=ok, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def gradient_tile_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    dy_rows = dy_ptr + rows[:, None] * stride_dy
    y_rows = y_ptr + rows[:, None] * stride_y
    dx_rows = dx_ptr + rows[:, None] * stride_dx
    row_ok = (rows < n_rows)[:, None]

    products = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=ok, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=1)[:, None]

    for start in range(0, n_cols, COLS):
        cols = (start + tl.arange(0, COLS))[None, :]
        ok = row_ok & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_rows + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def tile_of(n_cols: int) -> dict:
    """The constexpr arguments of both kernels."""
    return {"ROWS": ROWS, "COLS": min(triton.next_power_of_2(n_cols), MAX_COLS)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    softmax_tile_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **tile_of(n_cols), num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    strides = [t.stride(0) for t in (dy, y, out)]
    gradient_tile_kernel[grid](dy, y, out, n_rows, n_cols, *strides, **tile_of(n_cols), num_warps=8)
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


if __name__ == "__main__":
    a = torch.randn(5, 7)
    print(softmax_forward(a), torch.softmax(a, dim=1))
