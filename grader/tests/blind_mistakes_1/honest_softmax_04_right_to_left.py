# lab2/online_softmax.py | honest | - | unusual: a fixed number of programs, each doing every n-th row; the first sweep goes from the last block to the first, the second back from the first to the last; the guard is on the exponents, not on the shift; the division is a product with the reciprocal
"""Softmax, rows dealt out like cards, blocks from right to left."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 1024
INF = tl.constexpr(float("inf"))


@triton.jit
def difference(a, b):
    return tl.where(a == -INF, -INF, a - b)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    for row in range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        source = x_ptr + row * stride_x
        target = y_ptr + row * stride_y
        m = -INF
        d = 0.0
        for i in range(0, blocks):
            cols = (blocks - 1 - i) * BLOCK + lanes
            x = tl.load(source + cols, mask=cols < n_cols, other=-INF).to(tl.float32)
            top = tl.maximum(m, tl.max(x, axis=0))
            d = d * tl.exp(difference(m, top)) + tl.sum(tl.exp(difference(x, top)), axis=0)
            m = top
        r = 1.0 / d
        for i in range(0, blocks):
            cols = i * BLOCK + lanes
            x = tl.load(source + cols, mask=cols < n_cols, other=-INF).to(tl.float32)
            tl.store(target + cols, (tl.exp(x - m) * r).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    for row in range(tl.program_id(0).to(tl.int64), n_rows, tl.num_programs(0)):
        a = dy_ptr + row * stride_dy + lanes
        b = y_ptr + row * stride_y + lanes
        c = dx_ptr + row * stride_dx + lanes
        s = 0.0
        for i in range(0, blocks):
            first = (blocks - 1 - i) * BLOCK
            dy = tl.load(a + first, mask=lanes < n_cols - first, other=0.0).to(tl.float32)
            y = tl.load(b + first, mask=lanes < n_cols - first, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for first in range(0, n_cols, BLOCK):
            dy = tl.load(a + first, mask=lanes < n_cols - first, other=0.0).to(tl.float32)
            y = tl.load(b + first, mask=lanes < n_cols - first, other=0.0).to(tl.float32)
            tl.store(c + first, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=lanes < n_cols - first)


def hands(t: torch.Tensor) -> tuple:
    """The grid: at most 16 programs for each multiprocessor."""
    if t.is_cuda:
        return (min(t.shape[0], 16 * torch.cuda.get_device_properties(t.device).multi_processor_count),)
    return (min(t.shape[0], 4),)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    BLOCK = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    online_softmax_kernel[hands(x)](x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    BLOCK = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_backward_kernel[hands(dy)](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK
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
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
