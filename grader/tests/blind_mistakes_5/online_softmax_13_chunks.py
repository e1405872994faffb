# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) partial_kernel of the forward pass loads lanes past the end of the row with other=0.0 instead of -inf, so each of them adds exp(0 - m) to the sum (and may be the maximum): rows whose length is not a multiple of the block sum to less than 1. (2) OnlineSoftmax.backward does not call dy.contiguous(), while the kernel assumes contiguous columns: expanded, transposed or every-second-column gradients are read at the wrong places.
"""Softmax in two launches: every chunk of a row has its own program, partial results go through a scratch tensor."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048  # columns of a chunk
BACKWARD_BLOCK = 2048


@triton.jit
def partial_kernel(x_ptr, part_ptr, n_cols, stride_x, chunks, BLOCK: tl.constexpr):
    """(maximum, sum relative to it) of one chunk of one row -> part[row, chunk, 0:2]."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    m = tl.max(x, axis=0)
    safe = tl.where(m == -float("inf"), 0.0, m)
    d = tl.sum(tl.exp(x - safe), axis=0)
    slot = part_ptr + (row * chunks + chunk) * 2
    tl.store(slot, m)
    tl.store(slot + 1, d)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, part_ptr, n_cols, stride_x, stride_y, chunks, CHUNKS: tl.constexpr, BLOCK: tl.constexpr
):
    """Join the parts of the row, then normalise the own chunk."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = tl.arange(0, CHUNKS)
    slots = part_ptr + (row * chunks + c) * 2
    ms = tl.load(slots, mask=c < chunks, other=-float("inf"))
    ds = tl.load(slots + 1, mask=c < chunks, other=0.0)
    m = tl.max(ms, axis=0)
    d = tl.sum(ds * tl.exp(ms - m), axis=0)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def partial_dot_kernel(dy_ptr, y_ptr, part_ptr, n_cols, stride_dy, stride_y, chunks, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(part_ptr + row * chunks + chunk, tl.sum(dy * y, axis=0))


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    part_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    chunks,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    c = tl.arange(0, CHUNKS)
    s = tl.sum(tl.load(part_ptr + row * chunks + c, mask=c < chunks, other=0.0), axis=0)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    dx = y * (dy - s)
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    chunks = triton.cdiv(n_cols, block)
    part = torch.empty((n_rows, chunks, 2), device=x.device, dtype=torch.float32)
    grid = (n_rows, chunks)
    partial_kernel[grid](x, part, n_cols, x.stride(0), chunks, BLOCK=block)
    online_softmax_kernel[grid](
        x,
        out,
        part,
        n_cols,
        x.stride(0),
        out.stride(0),
        chunks,
        CHUNKS=triton.next_power_of_2(chunks),
        BLOCK=block,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    chunks = triton.cdiv(n_cols, block)
    part = torch.empty((n_rows, chunks), device=dy.device, dtype=torch.float32)
    grid = (n_rows, chunks)
    partial_dot_kernel[grid](dy, y, part, n_cols, dy.stride(0), y.stride(0), chunks, BLOCK=block)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        part,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        chunks,
        CHUNKS=triton.next_power_of_2(chunks),
        BLOCK=block,
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
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
