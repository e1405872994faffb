# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `partial_kernel` stores at `slot = part * tl.num_programs(axis=0) + row`, but `normalise_kernel` loads from `row * PARTS + tl.arange(0, PARTS)`; the slot should be `row * PARTS + part`. Rows are normalised with statistics of other rows, in all cases with more than one row.
"""Softmax whose rows are shared by eight programs: partial statistics first, then the normalised row."""

import torch
import triton
import triton.language as tl

PARTS = 8  # programs for each row
WIDEST = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def partial_kernel(x_ptr, tops_ptr, sums_ptr, n_cols, part_cols, stride_x, BLOCK: tl.constexpr):
    """Maximum, and sum relative to it, of one part of one row; -inf and 0 for a part without columns."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    x_row_ptr = x_ptr + row * stride_x
    first = part * part_cols
    last = tl.minimum(first + part_cols, n_cols)

    m = -float("inf")
    d = 0.0
    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < last, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new

    slot = part * tl.num_programs(axis=0) + row
    tl.store(tops_ptr + slot, m)
    tl.store(sums_ptr + slot, d)


@triton.jit
def normalise_kernel(
    x_ptr,
    y_ptr,
    tops_ptr,
    sums_ptr,
    n_cols,
    part_cols,
    stride_x,
    stride_y,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Merge the statistics of all parts of a row, and normalise one part with them."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    first = part * part_cols
    last = tl.minimum(first + part_cols, n_cols)

    slots = row * PARTS + tl.arange(0, PARTS)
    tops = tl.load(tops_ptr + slots)
    sums = tl.load(sums_ptr + slots)
    m = tl.max(tops, axis=0)
    d = tl.sum(sums * tl.exp(tops - m), axis=0)

    for start in range(first, last, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < last, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < last)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    tops = torch.empty((n_rows, PARTS), dtype=torch.float32, device=x.device)
    sums = torch.empty((n_rows, PARTS), dtype=torch.float32, device=x.device)
    part_cols = triton.cdiv(n_cols, PARTS)
    block = min(triton.next_power_of_2(part_cols), WIDEST)
    warps = 4 if block > 512 else 1
    grid = (n_rows, PARTS)
    partial_kernel[grid](x, tops, sums, n_cols, part_cols, x.stride(0), BLOCK=block, num_warps=warps)
    normalise_kernel[grid](
        x,
        out,
        tops,
        sums,
        n_cols,
        part_cols,
        x.stride(0),
        out.stride(0),
        PARTS=PARTS,
        BLOCK=block,
        num_warps=warps,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
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
        num_warps=16 if block > 2048 else 4,
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
