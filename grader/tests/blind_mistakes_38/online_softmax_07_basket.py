# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In the first loop of the forward kernel lanes past the end of the row load `other=-65504.0` instead of -inf: where a row has a partial last block and its maximum is near or below -65504 (fp16 rows near the lowest number, fp32 and bf16 rows far below), these lanes enter the maximum and the sum, and the row comes out too small or all zeros. (2) The rows of the result are addressed as `y_ptr + row * n_cols`, so an `out` whose rows are padded (or far apart) is written at wrong places, also between the rows; only a contiguous out is right. It should be other=-inf, and out.stride(0) as the row stride of out.
"""Softmax over the columns of a matrix, forward and backward."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 16384


@triton.jit
def forward_row(x_ptr, y_ptr, n_cols, x_pitch, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_pitch
    y_ptr += row * n_cols
    offs = tl.arange(0, BLOCK)

    hi = -float("inf")
    acc = 0.0
    for base in range(0, n_cols, BLOCK):
        valid = base + offs < n_cols
        v = tl.load(x_ptr + base + offs, mask=valid, other=-65504.0).to(tl.float32)
        prev = hi
        hi = tl.maximum(prev, tl.max(v, axis=0))
        ref = tl.where(hi == -float("inf"), 0.0, hi)
        acc = acc * tl.exp(prev - ref) + tl.sum(tl.exp(v - ref), axis=0)

    for base in range(0, n_cols, BLOCK):
        valid = base + offs < n_cols
        v = tl.load(x_ptr + base + offs, mask=valid, other=0.0).to(tl.float32)
        p = tl.exp(v - hi) / acc
        tl.store(y_ptr + base + offs, p.to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def backward_row(g_ptr, p_ptr, dx_ptr, n_cols, g_pitch, p_pitch, dx_pitch, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    g_ptr += row * g_pitch
    p_ptr += row * p_pitch
    dx_ptr += row * dx_pitch
    offs = tl.arange(0, BLOCK)

    acc = 0.0
    for base in range(0, n_cols, BLOCK):
        valid = base + offs < n_cols
        g = tl.load(g_ptr + base + offs, mask=valid, other=0.0).to(tl.float32)
        p = tl.load(p_ptr + base + offs, mask=valid, other=0.0).to(tl.float32)
        acc += tl.sum(g * p, axis=0)

    for base in range(0, n_cols, BLOCK):
        valid = base + offs < n_cols
        g = tl.load(g_ptr + base + offs, mask=valid, other=0.0).to(tl.float32)
        p = tl.load(p_ptr + base + offs, mask=valid, other=0.0).to(tl.float32)
        tl.store(dx_ptr + base + offs, (p * g - p * acc).to(dx_ptr.dtype.element_ty), mask=valid)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.size(0), x.size(1)
    y = out
    if y is None:
        y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(MAX_BLOCK, triton.next_power_of_2(n_cols))
    forward_row[(n_rows,)](
        x,
        y,
        n_cols,
        x.stride(0),
        BLOCK=block,
        num_warps=max(1, min(16, block // 1024)),
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = dy.size(0), dy.size(1)
    dx = out
    if dx is None:
        dx = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(MAX_BLOCK // 2, triton.next_power_of_2(n_cols))
    backward_row[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        num_warps=max(1, min(16, block // 512)),
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
