# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_forward: the grid is `n_rows // rows` programs, rounded down: with 4 rows a program (n_cols up to 1024) the last n_rows % 4 rows are never written, and nothing at all for fewer than 4 rows; should be triton.cdiv(n_rows, rows). (2) online_softmax_kernel has one `stride`, that of x, and uses `place` (rows * stride + cols) for the store as well: wrong where out has another row stride than x (padded x or out, or no out and a padded x); should be the row stride of y for the store
"""Softmax: short rows come four to a program, long ones alone."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]
    m = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        place = rows * stride + cols
        valid = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_ptr + place, mask=valid, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        place = rows * stride + cols
        valid = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_ptr + place, mask=valid, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        valid = cols < n_cols
        dy = tl.load(dy_row + cols, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=valid, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        valid = cols < n_cols
        dy = tl.load(dy_row + cols, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=valid, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=valid)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    rows = 4 if block <= 1024 else 1
    grid = (n_rows // rows,)
    online_softmax_kernel[grid](x, out, n_rows, n_cols, x.stride(0), ROWS=rows, BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
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
