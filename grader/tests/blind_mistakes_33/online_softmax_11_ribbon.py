# labs/lab2_online_softmax/online_softmax.py | corner | in online_softmax_kernel, the first sweep's load has `other=-1e4` for lanes past the end of the row, which is above the row where all of its values are below -10000: then these lanes are the maximum and make up the sum, and y becomes 0 everywhere; shows only for such rows (fp32, fp16 and bf16), and only where n_cols is no multiple of the block; it should be -float("inf")
"""Softmax over the rows of a matrix, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
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
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y

    m = -float("inf")
    d = 0.0
    start = 0
    while start < n_cols:
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n_cols, other=-1e4).to(tl.float32)
        m_next = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_next > -float("inf"), m_next, 0.0)
        factor = tl.exp(m - shift)
        d = d * factor + tl.sum(tl.exp(x - shift), axis=0)
        m = m_next
        start += BLOCK

    start = 0
    while start < n_cols:
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < n_cols)
        start += BLOCK


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
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
        dx = (dy - s) * y
        tl.store(dx_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=offsets < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    BLOCK = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=BLOCK,
        num_warps=clamp(BLOCK // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    BLOCK = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=BLOCK,
        num_warps=clamp(BLOCK // 512, 4, 8),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = softmax_forward(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, dy):
        out = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), out)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
