# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: where there are fewer than 128 rows of more than 16384 columns, each row is split over up to 64 programs, which store partial maxima and sums in two small fp32 buffers, and a second launch joins them and normalises; otherwise one program a row. Loops are in shared helpers.
"""Softmax with one program for each row, or with many for each of a few long rows; gradient; autograd."""

import torch
import triton
import triton.language as tl

BLOCK_WHOLE = 16384  # widest block where a program has a whole row
BLOCK_PART = 8192  # block where a row is split
FEW_ROWS = 128  # below this many rows, long rows are split
MOST_PARTS = 64
BLOCK_GRADIENT = 16384


@triton.jit
def statistics(row_ptr, begin, end, lanes, BLOCK: tl.constexpr):
    """The maximum m and the sum of exp(x - m) over columns begin to end - 1."""
    m = -float("inf")
    d = 0.0
    for start in range(begin, end, BLOCK):
        cols = start + lanes
        x = tl.load(
            row_ptr + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def normalise(x_row, y_row, begin, end, lanes, m, d, BLOCK: tl.constexpr):
    """exp(x - m) / d over columns begin to end - 1."""
    for start in range(begin, end, BLOCK):
        cols = start + lanes
        mask = cols < end
        x = tl.load(
            x_row + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_row + cols, y.to(y_row.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


@triton.jit
def whole_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    lanes = tl.arange(0, BLOCK)
    m, d = statistics(x_row, 0, n_cols, lanes, BLOCK)
    normalise(x_row, y_ptr + row * stride_y, 0, n_cols, lanes, m, d, BLOCK)


@triton.jit
def part_statistics_kernel(
    x_ptr, tops_ptr, sums_ptr, n_cols, part_cols, n_parts, stride_x, BLOCK: tl.constexpr
):
    """Program (i, k): statistics of part k of row i."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    begin = part * part_cols
    end = tl.minimum(begin + part_cols, n_cols)
    m, d = statistics(x_ptr + row * stride_x, begin, end, tl.arange(0, BLOCK), BLOCK)
    tl.store(tops_ptr + row * n_parts + part, m)
    tl.store(sums_ptr + row * n_parts + part, d)


@triton.jit
def part_normalise_kernel(
    x_ptr,
    y_ptr,
    tops_ptr,
    sums_ptr,
    n_cols,
    part_cols,
    n_parts,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Program (i, k): part k of the result of row i, from the statistics of all its parts."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    parts = tl.arange(0, PARTS)
    tops = tl.load(tops_ptr + row * n_parts + parts, mask=parts < n_parts, other=-float("inf"))
    sums = tl.load(sums_ptr + row * n_parts + parts, mask=parts < n_parts, other=0.0)
    m = tl.max(tops, axis=0)
    d = tl.sum(sums * tl.exp(tops - m), axis=0)
    begin = part * part_cols
    end = tl.minimum(begin + part_cols, n_cols)
    normalise(
        x_ptr + row * stride_x,
        y_ptr + row * stride_y,
        begin,
        end,
        tl.arange(0, BLOCK),
        m,
        d,
        BLOCK,
    )


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), s the sum of y * dy over row i; program i owns it."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(
            dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


def split_rows(x: torch.Tensor, out: torch.Tensor):
    """Launch two kernels: the statistics of all parts of all rows, then the results."""
    n_rows, n_cols = x.shape
    n_blocks = triton.cdiv(n_cols, BLOCK_PART)
    part_cols = triton.cdiv(n_blocks, MOST_PARTS) * BLOCK_PART
    n_parts = triton.cdiv(n_cols, part_cols)
    tops = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    sums = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    grid = (n_rows, n_parts)
    part_statistics_kernel[grid](
        x, tops, sums, n_cols, part_cols, n_parts, x.stride(0), BLOCK=BLOCK_PART, num_warps=8
    )
    part_normalise_kernel[grid](
        x,
        out,
        tops,
        sums,
        n_cols,
        part_cols,
        n_parts,
        x.stride(0),
        out.stride(0),
        BLOCK=BLOCK_PART,
        PARTS=triton.next_power_of_2(n_parts),
        num_warps=8,
    )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    if n_rows < FEW_ROWS and n_cols > BLOCK_WHOLE:
        split_rows(x, out)
        return out
    block = min(triton.next_power_of_2(n_cols), BLOCK_WHOLE)
    whole_rows_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block == BLOCK_WHOLE else min(max(block // 1024, 1), 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_GRADIENT)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 32),
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
