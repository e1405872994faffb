# labs/lab2_online_softmax/online_softmax.py | right | Unusual: rows that are few and long are shared by several programs (one launch for the statistics of parts of 4096 columns, a second one that merges them with tl.reduce and its own combine function, and normalises), other rows have one program each; statistics are pairs that the helpers describe and merge pass on.
"""Softmax: one program for each row, or several where rows are few and long; gradient and autograd."""

import torch
import triton
import triton.language as tl

ROW_BLOCK = 16384  # columns at a time where a program has a row to itself
PART = 4096  # columns of a part of a shared row
FEW = 64  # rows, up to which long rows are shared
LANES = 32  # parts that are merged at a time
BACKWARD_BLOCK = 16384


@triton.jit
def merge(m1, d1, m2, d2):
    """Statistics of two pieces of a row together: (maximum, sum relative to it) of each."""
    m = tl.maximum(m1, m2)
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, d1 * tl.exp(m1 - shift) + d2 * tl.exp(m2 - shift)


@triton.jit
def describe(x):
    """Statistics of one block; -inf and 0 where all of it is -inf."""
    m = tl.max(x, axis=0)
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i computes row i in two sweeps."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        exists = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=exists, other=-float("inf"), eviction_policy="evict_last")
        block_m, block_d = describe(x.to(tl.float32))
        m, d = merge(m, d, block_m, block_d)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        exists = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=exists, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=exists)


@triton.jit
def part_kernel(x_ptr, tops_ptr, sums_ptr, n_cols, n_parts, stride_x, PART: tl.constexpr):
    """Statistics of one part of one row."""
    program = tl.program_id(axis=0).to(tl.int64)
    cols = program % n_parts * PART + tl.arange(0, PART)
    x = tl.load(x_ptr + program // n_parts * stride_x + cols, mask=cols < n_cols, other=-float("inf"))
    m, d = describe(x.to(tl.float32))
    tl.store(tops_ptr + program, m)
    tl.store(sums_ptr + program, d)


@triton.jit
def finish_kernel(
    x_ptr,
    y_ptr,
    tops_ptr,
    sums_ptr,
    n_cols,
    n_parts,
    stride_x,
    stride_y,
    PART: tl.constexpr,
    LANES: tl.constexpr,
):
    """Merge the statistics of all parts of a row, and normalise one part."""
    program = tl.program_id(axis=0).to(tl.int64)
    row = program // n_parts
    m = -float("inf")
    d = 0.0
    for start in range(0, n_parts, LANES):
        parts = start + tl.arange(0, LANES)
        tops = tl.load(tops_ptr + row * n_parts + parts, mask=parts < n_parts, other=-float("inf"))
        sums = tl.load(sums_ptr + row * n_parts + parts, mask=parts < n_parts, other=0.0)
        lanes_m, lanes_d = tl.reduce((tops, sums), 0, merge)
        m, d = merge(m, d, lanes_m, lanes_d)
    cols = program % n_parts * PART + tl.arange(0, PART)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    if n_rows > FEW or n_cols <= PART:
        block = min(triton.next_power_of_2(n_cols), ROW_BLOCK)
        warps = 8 if block == ROW_BLOCK else clamp(block // 1024, 1, 4)
        row_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
        return out
    n_parts = triton.cdiv(n_cols, PART)
    tops = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    sums = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    grid = (n_rows * n_parts,)
    part_kernel[grid](x, tops, sums, n_cols, n_parts, x.stride(0), PART=PART, num_warps=4)
    finish_kernel[grid](
        x,
        out,
        tops,
        sums,
        n_cols,
        n_parts,
        x.stride(0),
        out.stride(0),
        PART=PART,
        LANES=LANES,
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        num_warps=clamp(block // 512, 4, 32),
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
