# labs/lab2_online_softmax/online_softmax.py | right | Two ways: one program a row, or, for at most 128 rows of more than 16384 columns, a two-dimensional grid of parts that store maximum and sum in a scratch tensor, and a second launch that joins them and normalises. The sweeps are functions that both ways share.
"""Softmax with two ways: one program a row, or, for few long rows, many programs and a second launch."""

import torch
import triton
import triton.language as tl

ROW_BLOCK = 16384  # one program a row
PART_BLOCK = 4096  # several programs a row
MOST_PARTS = 64
FEW_ROWS = 128
BACKWARD_BLOCK = 16384


@triton.jit
def sweep(row_ptr, first, end, BLOCK: tl.constexpr):
    """Maximum m of the columns from `first` to `end`, and sum of exp(x - m); -inf and 0 if all are -inf."""
    m = -float("inf")
    d = 0.0
    for start in range(first, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def finish(x_row, y_row, first, end, m, d, BLOCK: tl.constexpr):
    """Store exp(x - m) / d for the columns from `first` to `end`."""
    for start in range(first, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row + cols, y.to(y_row.dtype.element_ty), mask=cols < end, eviction_policy="evict_first")


@triton.jit
def row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    m, d = sweep(x_row, 0, n_cols, BLOCK)
    finish(x_row, y_ptr + row * stride_y, 0, n_cols, m, d, BLOCK)


@triton.jit
def part_kernel(x_ptr, stats_ptr, n_cols, part, n_parts, stride_x, BLOCK: tl.constexpr):
    """Program (i, k) stores maximum and sum of part k of row i in stats, (n_rows, 2, n_parts) fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    k = tl.program_id(axis=1)
    first = k * part
    m, d = sweep(x_ptr + row * stride_x, first, tl.minimum(first + part, n_cols), BLOCK)
    tl.store(stats_ptr + row * 2 * n_parts + k, m)
    tl.store(stats_ptr + (row * 2 + 1) * n_parts + k, d)


@triton.jit
def join_kernel(
    x_ptr, y_ptr, stats_ptr, n_cols, part, n_parts, stride_x, stride_y,
    PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (i, k) joins the parts of row i, and stores part k of the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    k = tl.program_id(axis=1)
    parts = tl.arange(0, PARTS)
    m = tl.load(stats_ptr + row * 2 * n_parts + parts, mask=parts < n_parts, other=-float("inf"))
    d = tl.load(stats_ptr + (row * 2 + 1) * n_parts + parts, mask=parts < n_parts, other=0.0)
    top = tl.max(m, axis=0)
    total = tl.sum(d * tl.exp(m - top), axis=0)
    first = k * part
    end = tl.minimum(first + part, n_cols)
    finish(x_ptr + row * stride_x, y_ptr + row * stride_y, first, end, top, total, BLOCK)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if n_rows > FEW_ROWS or n_cols <= ROW_BLOCK:
        block = min(triton.next_power_of_2(n_cols), ROW_BLOCK)
        warps = 8 if block == ROW_BLOCK else clamp(block // 1024, 1, 4)
        row_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
        return out
    part = triton.cdiv(n_cols, MOST_PARTS * PART_BLOCK) * PART_BLOCK
    n_parts = triton.cdiv(n_cols, part)
    stats = torch.empty((n_rows, 2, n_parts), dtype=torch.float32, device=x.device)
    grid = (n_rows, n_parts)
    part_kernel[grid](x, stats, n_cols, part, n_parts, x.stride(0), BLOCK=PART_BLOCK, num_warps=4)
    join_kernel[grid](
        x, out, stats, n_cols, part, n_parts, x.stride(0), out.stride(0),
        PARTS=triton.next_power_of_2(n_parts), BLOCK=PART_BLOCK, num_warps=4,
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; it goes to `out` where one is given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
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
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
