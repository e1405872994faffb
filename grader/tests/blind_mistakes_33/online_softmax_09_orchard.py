# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) in softmax_forward, the grid `x.shape[0] // PAIR` rounds down, so that the last row of an odd number of rows is never written, and nothing for one row; it should be triton.cdiv(x.shape[0], PAIR); (2) in online_softmax_kernel, the sum takes exp(x - shift) of the lanes past the end, which hold the 0 that they were loaded with (only the maximum is masked), so that each adds exp(-m) and the row sums to less than 1; shows where n_cols is no multiple of the block, most where the maximum is low (rows far below 0 become 0); the sum should be masked, too, or the load should have other=-float("inf")
"""Softmax with two rows in a program, side by side in one tile."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048
PAIR = 2


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    R: tl.constexpr,
    C: tl.constexpr,
):
    r = tl.program_id(axis=0) * R + tl.arange(0, R)
    r = r.to(tl.int64)[:, None]
    c = tl.arange(0, C)[None, :]
    maxima = tl.full([R, 1], -float("inf"), tl.float32)
    sums = tl.zeros([R, 1], tl.float32)

    for start in range(0, n_cols, C):
        valid = (r < n_rows) & (start + c < n_cols)
        x = tl.load(x_ptr + r * stride_x + start + c, mask=valid, other=0.0).to(tl.float32)
        block_max = tl.max(tl.where(valid, x, -float("inf")), axis=1)[:, None]
        new_maxima = tl.maximum(maxima, block_max)
        shift = tl.where(new_maxima == -float("inf"), 0.0, new_maxima)
        block_sum = tl.sum(tl.exp(x - shift), axis=1)[:, None]
        sums = sums * tl.exp(maxima - shift) + block_sum
        maxima = new_maxima

    for start in range(0, n_cols, C):
        valid = (r < n_rows) & (start + c < n_cols)
        x = tl.load(x_ptr + r * stride_x + start + c, mask=valid, other=0.0).to(tl.float32)
        y = tl.exp(x - maxima) / sums
        tl.store(y_ptr + r * stride_y + start + c, y.to(y_ptr.dtype.element_ty), mask=valid)


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
    R: tl.constexpr,
    C: tl.constexpr,
):
    r = tl.program_id(axis=0) * R + tl.arange(0, R)
    r = r.to(tl.int64)[:, None]
    c = tl.arange(0, C)[None, :]

    products = tl.zeros([R, C], tl.float32)
    for start in range(0, n_cols, C):
        valid = (r < n_rows) & (start + c < n_cols)
        dy = tl.load(dy_ptr + r * stride_dy + start + c, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + r * stride_y + start + c, mask=valid, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=1)[:, None]

    for start in range(0, n_cols, C):
        valid = (r < n_rows) & (start + c < n_cols)
        dy = tl.load(dy_ptr + r * stride_dy + start + c, mask=valid, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + r * stride_y + start + c, mask=valid, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + r * stride_dx + start + c, dx.to(dx_ptr.dtype.element_ty), mask=valid)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    columns = min(triton.next_power_of_2(x.shape[1]), FORWARD_BLOCK)
    grid = (x.shape[0] // PAIR,)
    online_softmax_kernel[grid](
        x,
        out,
        x.shape[0],
        x.shape[1],
        x.stride(0),
        out.stride(0),
        R=PAIR,
        C=columns,
        num_warps=clamp(columns // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    columns = min(triton.next_power_of_2(dy.shape[1]), BACKWARD_BLOCK)
    grid = (triton.cdiv(dy.shape[0], PAIR),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        dy.shape[0],
        dy.shape[1],
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        R=PAIR,
        C=columns,
        num_warps=clamp(columns // 256, 1, 8),
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
