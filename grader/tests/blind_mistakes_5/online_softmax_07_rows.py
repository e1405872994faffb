# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In the forward kernel the running maximum m starts at 0 (tl.zeros) instead of -inf, so rows far below 0 keep 0 as maximum, every exp is 0 and 0 / 0 is NaN. (2) In the backward kernel the sum of the row is assigned in each block (`s = tl.sum(dy * y)`) instead of added (`s +=`), so for rows of more than one block (more than 4096 columns) only the last block counts.
"""Online softmax. A program has ROWS rows, so that narrow matrices do not launch tiny programs."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]  # (ROWS, 1)
    j = tl.arange(0, BLOCK)[None, :]  # (1, BLOCK)
    row_ok = i < n_rows

    m = tl.zeros((ROWS,), tl.float32)
    d = tl.full((ROWS,), 0.0, tl.float32)
    for k in range(0, n_cols, BLOCK):
        ok = row_ok & (k + j < n_cols)
        x = tl.load(x_ptr + i * stride_x + k + j, mask=ok, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=1))
        d = d * tl.exp(m - top) + tl.sum(tl.exp(x - top[:, None]), axis=1)
        m = top

    for k in range(0, n_cols, BLOCK):
        ok = row_ok & (k + j < n_cols)
        x = tl.load(x_ptr + i * stride_x + k + j, mask=ok, other=0.0).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_ptr + i * stride_y + k + j, y.to(y_ptr.dtype.element_ty), mask=ok)


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
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    j = tl.arange(0, BLOCK)[None, :]
    row_ok = i < n_rows

    s = tl.zeros((ROWS,), tl.float32)
    for k in range(0, n_cols, BLOCK):
        ok = row_ok & (k + j < n_cols)
        dy = tl.load(dy_ptr + i * stride_dy + k + j, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + i * stride_y + k + j, mask=ok, other=0.0).to(tl.float32)
        s = tl.sum(dy * y, axis=1)

    for k in range(0, n_cols, BLOCK):
        ok = row_ok & (k + j < n_cols)
        dy = tl.load(dy_ptr + i * stride_dy + k + j, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + i * stride_y + k + j, mask=ok, other=0.0).to(tl.float32)
        dx = y * dy - y * s[:, None]
        tl.store(dx_ptr + i * stride_dx + k + j, dx.to(dx_ptr.dtype.element_ty), mask=ok)


def shape_of_tile(n_cols, widest):
    block = min(triton.next_power_of_2(n_cols), widest)
    return max(1, min(8, 1024 // block)), block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    rows, block = shape_of_tile(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    rows, block = shape_of_tile(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=rows, BLOCK=block
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
