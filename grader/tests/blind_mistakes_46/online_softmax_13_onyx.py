# labs/lab2_online_softmax/online_softmax.py | corner | `partial_sums_kernel` stores to `parts_ptr + chunk * tl.num_programs(0) + row` (one chunk after the other), while `gradient_kernel` reads `parts_ptr + row * n_chunks + which` (one row after the other); the store should be at `row * n_chunks + chunk`, or the load at `which * n_rows + row`. It shows only in matrices of two or more rows that have more than 4096 columns, such as (2, 40000); one row, or one chunk, is right.
"""Softmax with persistent programs; its gradient with long rows split among programs, in two launches."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
PROGRAMS = 1056  # eight for each multiprocessor of an H200
CHUNK = 4096  # columns of one program of the gradient
GROUP = 32  # partial sums that are read at a time


@triton.jit
def softmax_rows_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program p owns rows p, p + programs, p + 2 * programs, and so on."""
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        x_row_ptr = x_ptr + row * stride_x
        y_row_ptr = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(0)


@triton.jit
def partial_sums_kernel(dy_ptr, y_ptr, parts_ptr, n_cols, stride_dy, stride_y, CHUNK: tl.constexpr):
    """Program (i, j): the sum of y * dy over chunk j of row i."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1).to(tl.int64)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    mask = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0, eviction_policy="evict_last")
    y = tl.load(y_ptr + row * stride_y + cols, mask=mask, other=0.0, eviction_policy="evict_last")
    part = tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    tl.store(parts_ptr + chunk * tl.num_programs(0) + row, part)


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    parts_ptr,
    dx_ptr,
    n_cols,
    n_chunks,
    stride_dy,
    stride_y,
    stride_dx,
    CHUNK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Program (i, j): add up the partial sums of row i, then dx for chunk j of it."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1).to(tl.int64)
    sums = tl.zeros((GROUP,), tl.float32)
    for first in range(0, n_chunks, GROUP):
        which = first + tl.arange(0, GROUP)
        sums += tl.load(parts_ptr + row * n_chunks + which, mask=which < n_chunks, other=0.0)
    s = tl.sum(sums, axis=0)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    mask = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0, eviction_policy="evict_first")
    y = tl.load(y_ptr + row * stride_y + cols, mask=mask, other=0.0, eviction_policy="evict_first")
    dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the columns of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    softmax_rows_kernel[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 4096 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of the softmax."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    chunk = min(triton.next_power_of_2(n_cols), CHUNK)
    n_chunks = triton.cdiv(n_cols, chunk)
    parts = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=dy.device)
    grid = (n_rows, n_chunks)
    partial_sums_kernel[grid](
        dy, y, parts, n_cols, dy.stride(0), y.stride(0), CHUNK=chunk, num_warps=8 if chunk > 2048 else 4
    )
    gradient_kernel[grid](
        dy,
        y,
        parts,
        out,
        n_cols,
        n_chunks,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        CHUNK=chunk,
        GROUP=GROUP,
        num_warps=8 if chunk > 2048 else 4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, and softmax_backward as its gradient."""

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
    """Softmax over the columns of x, for autograd."""
    return OnlineSoftmax.apply(x)
