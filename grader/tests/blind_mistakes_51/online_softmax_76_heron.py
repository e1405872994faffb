# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `row_stats`, `offsets = row * PARTS + parts` steps by the rounded-up number of parts, while `part_stats_kernel` stored with `row * n_parts`: it should be `row * n_parts + parts`. It shows where the number of parts of 4096 columns is no power of two and there is more than one row, as (7, 20011). (2) In `normalise_kernel`, `y_ptr + row * stride_y` uses the int32 `row = tl.program_id(axis=0)`: it should be `row.to(tl.int64) * stride_y`. It shows where rows of `out` reach beyond 2^31 elements, also in rows of one part.
"""Softmax over rows of any length in two launches: first each part of a row gives a maximum and a sum, then each part
is normalised with those of all parts."""

import torch
import triton
import triton.language as tl

CHUNK = 4096  # columns of one program
BACKWARD_BLOCK = 8192


@triton.jit
def part_stats_kernel(
    x_ptr,
    tops_ptr,  # (n_rows, n_parts) fp32, the maximum of each part
    sums_ptr,  # (n_rows, n_parts) fp32, the sum of exp(x - top) of each part
    n_cols,
    n_parts,
    stride_x,
    CHUNK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    cols = part * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    # A part of nothing but -inf has the sum 0, whatever finite number is subtracted.
    shift = tl.where(top == -float("inf"), 0.0, top)
    tl.store(tops_ptr + row * n_parts + part, top)
    tl.store(sums_ptr + row * n_parts + part, tl.sum(tl.exp(x - shift), axis=0))


@triton.jit
def row_stats(tops_ptr, sums_ptr, row, n_parts, PARTS: tl.constexpr):
    """Maximum and sum of a whole row from those of its parts."""
    parts = tl.arange(0, PARTS)
    offsets = row * PARTS + parts
    tops = tl.load(tops_ptr + offsets, mask=parts < n_parts, other=-float("inf"))
    sums = tl.load(sums_ptr + offsets, mask=parts < n_parts, other=0.0)
    top = tl.max(tops, axis=0)
    return top, tl.sum(sums * tl.exp(tops - top), axis=0)


@triton.jit
def normalise_kernel(
    x_ptr,
    y_ptr,
    tops_ptr,
    sums_ptr,
    n_cols,
    n_parts,
    stride_x,
    stride_y,
    CHUNK: tl.constexpr,
    PARTS: tl.constexpr,  # n_parts, rounded up to a power of two
):
    row = tl.program_id(axis=0)
    part = tl.program_id(axis=1)
    top, total = row_stats(tops_ptr, sums_ptr, row.to(tl.int64), n_parts, PARTS)
    cols = part * CHUNK + tl.arange(0, CHUNK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row.to(tl.int64) * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - top) / total
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - s), s the sum of y * dy over the row; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    chunk = min(triton.next_power_of_2(n_cols), CHUNK)
    n_parts = triton.cdiv(n_cols, chunk)
    tops = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    sums = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    warps = clamp(chunk // 512, 1, 8)
    grid = (n_rows, n_parts)
    part_stats_kernel[grid](x, tops, sums, n_cols, n_parts, x.stride(0), CHUNK=chunk, num_warps=warps)
    normalise_kernel[grid](
        x,
        out,
        tops,
        sums,
        n_cols,
        n_parts,
        x.stride(0),
        out.stride(0),
        CHUNK=chunk,
        PARTS=triton.next_power_of_2(n_parts),
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
