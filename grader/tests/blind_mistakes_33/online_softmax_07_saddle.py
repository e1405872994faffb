# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | in online_softmax_kernel, `m = -float("inf")` and `d = 0.0` stand before the loop over the four rows of a program and are not set again for each row, so that a row's maximum and sum include those of the rows before it in the program; shows in nearly every matrix of more than one row: rows 1 to 3 of each four sum to less than 1, while rows 0, 4, 8, ... are right; both should be set inside the loop, for each row
"""Softmax with four neighbouring rows to a program, one after the other."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
ROWS_EACH = 4


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    EACH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(axis=0).to(tl.int64) * EACH
    columns = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for i in range(0, EACH):
        row = first + i
        if row < n_rows:
            src = x_ptr + row * stride_x
            dst = y_ptr + row * stride_y
            for start in range(0, n_cols, BLOCK):
                at = start + columns
                x = tl.load(src + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
                top = tl.maximum(m, tl.max(x, axis=0))
                shift = tl.where(top == -float("inf"), 0.0, top)
                d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
                m = top
            for start in range(0, n_cols, BLOCK):
                at = start + columns
                x = tl.load(src + at, mask=at < n_cols, other=-float("inf")).to(tl.float32)
                y = tl.exp(x - m) / d
                tl.store(dst + at, y.to(y_ptr.dtype.element_ty), mask=at < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        at = start + columns
        dy = tl.load(dy_ptr + row * stride_dy + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + at, mask=at < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        at = start + columns
        dy = tl.load(dy_ptr + row * stride_dy + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + at, mask=at < n_cols, other=0.0).to(tl.float32)
        dx = (dy - dot) * y
        tl.store(dx_ptr + row * stride_dx + at, dx.to(dx_ptr.dtype.element_ty), mask=at < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    programs = triton.cdiv(n_rows, ROWS_EACH)
    online_softmax_kernel[(programs,)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        EACH=ROWS_EACH,
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
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
        num_warps=clamp(block // 512, 4, 16),
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
