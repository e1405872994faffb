# labs/lab2_online_softmax/online_softmax.py | corner | In `part_sums_kernel` `slot = part * n_rows + row` lays the partial results out as (parts, rows), while `part_results_kernel` reads them with `row * PARTS + tl.arange(0, PARTS)`; it should be `slot = row * PARTS + part`. Rows then get maxima and sums of other rows' parts: only with more than 32768 columns (two launches) and more than one row, as 2 x 40000 in all dtypes; 1 x 131072 is right.
"""Softmax over rows of any length. A very long row is shared by several programs, in two launches."""

import torch
import triton
import triton.language as tl

LONG = 32768  # a longer row has more than one program
PARTS = 16  # programs for each long row
ROW_BLOCK = 8192
PART_BLOCK = 4096


@triton.jit
def online(x_row, begin, end, BLOCK: tl.constexpr):
    """Maximum of the columns from begin to end, and the sum of exp(x - maximum); -inf and 0 where there are none."""
    m = -float("inf")
    d = 0.0
    for start in range(begin, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def normalise(x_row, y_row, begin, end, m, d, BLOCK: tl.constexpr):
    """y = exp(x - m) / d for the columns from begin to end."""
    for start in range(begin, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < end, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + cols, y.to(y_row.dtype.element_ty), mask=cols < end, eviction_policy="evict_first")


@triton.jit
def whole_row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m, d = online(x_row, 0, n_cols, BLOCK)
    normalise(x_row, y_row, 0, n_cols, m, d, BLOCK)


@triton.jit
def part_sums_kernel(
    x_ptr, tops_ptr, sums_ptr, n_rows, n_cols, stride_x, span, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Maximum and sum of one part of a row, `span` columns wide; behind the row parts are empty."""
    pid = tl.program_id(axis=0)
    row = (pid // PARTS).to(tl.int64)
    part = pid % PARTS
    begin = part * span
    end = tl.minimum(begin + span, n_cols)
    m, d = online(x_ptr + row * stride_x, begin, end, BLOCK)
    slot = part * n_rows + row
    tl.store(tops_ptr + slot, m)
    tl.store(sums_ptr + slot, d)


@triton.jit
def part_results_kernel(
    x_ptr, y_ptr, tops_ptr, sums_ptr, n_cols, stride_x, stride_y, span, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Merge what the parts of the row found, and normalise one of them."""
    pid = tl.program_id(axis=0)
    row = (pid // PARTS).to(tl.int64)
    part = pid % PARTS
    slots = row * PARTS + tl.arange(0, PARTS)
    tops = tl.load(tops_ptr + slots)
    sums = tl.load(sums_ptr + slots)
    m = tl.max(tops, axis=0)
    d = tl.sum(sums * tl.exp(tops - m), axis=0)
    begin = part * span
    end = tl.minimum(begin + span, n_cols)
    normalise(x_ptr + row * stride_x, y_ptr + row * stride_y, begin, end, m, d, BLOCK)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_row.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    if n_cols <= LONG:
        block = min(triton.next_power_of_2(n_cols), ROW_BLOCK)
        warps = min(max(block // 1024, 1), 8)
        whole_row_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
        return out
    # A part is whole blocks wide, so that each begins at an aligned column.
    span = triton.cdiv(n_cols, PARTS * PART_BLOCK) * PART_BLOCK
    tops = torch.empty(n_rows * PARTS, dtype=torch.float32, device=x.device)
    sums = torch.empty(n_rows * PARTS, dtype=torch.float32, device=x.device)
    grid = (n_rows * PARTS,)
    options = {"PARTS": PARTS, "BLOCK": PART_BLOCK, "num_warps": 4}
    part_sums_kernel[grid](x, tops, sums, n_rows, n_cols, x.stride(0), span, **options)
    part_results_kernel[grid](x, out, tops, sums, n_cols, x.stride(0), out.stride(0), span, **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), ROW_BLOCK)
    warps = min(max(block // 512, 4), 16)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
