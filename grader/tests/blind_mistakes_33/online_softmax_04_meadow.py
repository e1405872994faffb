# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) in online_softmax_kernel, m is replaced by the new maximum before `d * tl.exp(m - shift)`, so that this factor is 1 and the old sum is never rescaled; shows in rows longer than one block of 2048 whose maximum rises behind a block with finite values; it should be exp(old m - shift), with m replaced last; (2) in softmax_forward, `torch.empty(x.shape, device=x.device)` has no dtype, so that the result is float32 for fp16 and bf16 inputs where no out is given (also in softmax(x)); it should have dtype=x.dtype
"""Row softmax with a running maximum, blocks of 2048 columns at most."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0)
    row = pid.to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_row_ptr + offs, mask=mask, other=-float("inf"))
        x = x.to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_row_ptr + offs, mask=mask, other=-float("inf"))
        x = x.to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    pid = tl.program_id(0)
    row = pid.to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        y = tl.load(y_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        acc += y * dy
    s = tl.sum(acc, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        y = tl.load(y_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + offs, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, device=x.device)
    n_rows = x.shape[0]
    n_cols = x.shape[1]
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    grid = (n_rows,)
    online_softmax_kernel[grid](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows = dy.shape[0]
    n_cols = dy.shape[1]
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    grid = (n_rows,)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8,
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
        dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
