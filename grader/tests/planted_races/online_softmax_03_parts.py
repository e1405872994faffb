# labs/lab2_online_softmax/online_softmax.py | none | statistics_kernel stores m and d of each block to a place of its own; online_softmax_kernel, a second launch, loads those of all blocks of the row; each element of m, d and out is stored by one program
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

PART = 1024  # columns of a program of the forward pass
BACKWARD_BLOCK = 16384


@triton.jit
def statistics_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    m_ptr,  # (n_rows, parts) fp32
    d_ptr,  # (n_rows, parts) fp32
    n_cols,
    stride_x,
    BLOCK: tl.constexpr,
):
    """m and d of one block of columns; program (i, k) has block k of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    shift = tl.where(m == -float("inf"), 0.0, m)
    place = row * tl.num_programs(axis=1) + part
    tl.store(m_ptr + place, m)
    tl.store(d_ptr + place, tl.sum(tl.exp(x - shift), axis=0))


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    m_ptr,
    d_ptr,
    n_cols,
    stride_x,  # elements from one row of x to the next
    stride_y,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,  # a power of two, at least the number of blocks
):
    """y[i, :] = exp(x[i, :] - m) / d; program (i, k) merges m and d of the blocks of row i and has block k of it."""
    row = tl.program_id(axis=0).to(tl.int64)
    parts = tl.num_programs(axis=1)
    k = tl.arange(0, PARTS)
    ms = tl.load(m_ptr + row * parts + k, mask=k < parts, other=-float("inf"))
    ds = tl.load(d_ptr + row * parts + k, mask=k < parts, other=0.0)
    m = tl.max(ms, axis=0)
    d = tl.sum(ds * tl.exp(ms - m), axis=0)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like dy, the result of the forward pass
    dx_ptr,  # (n_rows, n_cols) like dy
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products += y * dy
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous.

    Rows of x and of `out` may be any number of elements apart; the result goes to `out`, of the same shape,
    where one is given. Each row holds at least one finite value; -inf is allowed beside it. After Milakov and
    Gimelshein, arXiv:1805.02867, algorithm 3.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), PART)
    parts = triton.cdiv(n_cols, block)
    m = torch.empty((n_rows, parts), device=x.device, dtype=torch.float32)
    d = torch.empty((n_rows, parts), device=x.device, dtype=torch.float32)
    statistics_kernel[(n_rows, parts)](x, m, d, n_cols, x.stride(0), BLOCK=block)
    online_softmax_kernel[(n_rows, parts)](
        x, out, m, d, n_cols, x.stride(0), out.stride(0), BLOCK=block, PARTS=triton.next_power_of_2(parts)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols).

    Rows may be any number of elements apart; the result goes to `out` where one is given.
    """
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 512, 4, 32),
    )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
