# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel sets m and d before the loop over rows, not inside it, so with more than 132 rows the second and later rows of a program start with maximum and sum of the rows before, and come out too small; (2) softmax_forward writes to out.contiguous() and returns it, which is a copy where the rows of out are padded: out itself stays unwritten and is not what is returned; should use out with its own stride
"""Softmax by one program for each SM: each walks over its rows."""

import torch
import triton
import triton.language as tl

SMS = 132
BLOCK_MAX = 16384
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64)
    step = tl.num_programs(axis=0)
    lanes = tl.arange(0, BLOCK)
    m = LOWEST
    d = 0.0
    for turn in range(0, tl.cdiv(n_rows - first, step)):
        row = first + turn * step
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        for start in range(0, n_cols, BLOCK):
            mask = start + lanes < n_cols
            x = tl.load(x_row + start + lanes, mask=mask, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            mask = start + lanes < n_cols
            x = tl.load(x_row + start + lanes, mask=mask, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    first = tl.program_id(axis=0).to(tl.int64)
    step = tl.num_programs(axis=0)
    lanes = tl.arange(0, BLOCK)
    for turn in range(0, tl.cdiv(n_rows - first, step)):
        row = first + turn * step
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            mask = start + lanes < n_cols
            dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + lanes, mask=mask, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            mask = start + lanes < n_cols
            dy = tl.load(dy_row + start + lanes, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + lanes, mask=mask, other=0.0).to(tl.float32)
            tl.store(dx_row + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.empty_like(x) if out is None else out.contiguous()
    n_rows, n_cols = x.shape
    online_softmax_kernel[(min(n_rows, SMS),)](
        x,
        y,
        n_rows,
        n_cols,
        x.stride(0),
        y.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), BLOCK_MAX),
        num_warps=16,
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dx = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(min(n_rows, SMS),)](
        dy,
        y,
        dx,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), BLOCK_MAX),
        num_warps=32,
    )
    return dx


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
