# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_forward`, `part_cols = triton.cdiv(n_cols // PARTS, PART_BLOCK) * PART_BLOCK` rounds down first; it should be `triton.cdiv(n_cols, PARTS * PART_BLOCK) * PART_BLOCK`. On the split path (at most 128 rows, more than 8192 columns) the 8 parts then cover only 16384 * k columns when n_cols is 16384 * k + 1 to 7 (as 16385): the last 1 to 7 columns are not in the sum and are never written; all other lengths are right.
"""Softmax over rows; where there are few and long rows, several programs share each of them in two launches."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
PARTS = 8  # programs for one long row
PART_BLOCK = 2048
FEW_ROWS = 128
LONG_ROW = 8192


@triton.jit
def sweep(x_row_ptr, first, last, BLOCK: tl.constexpr):
    """Maximum of the columns from first to last, and the sum of exp(x - maximum)."""
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(first, last, BLOCK):
        cols = start + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < last, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    return m, d


@triton.jit
def write(x_row_ptr, y_row_ptr, first, last, m, d, BLOCK: tl.constexpr):
    """Normalised columns from first to last."""
    lanes = tl.arange(0, BLOCK)
    for start in range(first, last, BLOCK):
        cols = start + lanes
        mask = cols < last
        x = tl.load(x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(
            y_row_ptr + cols, y.to(y_row_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


@triton.jit
def row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    m, d = sweep(x_row_ptr, 0, n_cols, BLOCK)
    write(x_row_ptr, y_ptr + row * stride_y, 0, n_cols, m, d, BLOCK)


@triton.jit
def part_kernel(
    x_ptr, m_ptr, d_ptr, n_cols, stride_x, part_cols, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """m and d of one part of a row; a part behind the end of the row has -inf and 0."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    first = part * part_cols
    last = tl.minimum(first + part_cols, n_cols)
    m, d = sweep(x_ptr + row * stride_x, first, last, BLOCK)
    tl.store(m_ptr + row * PARTS + part, m)
    tl.store(d_ptr + row * PARTS + part, d)


@triton.jit
def finish_kernel(
    x_ptr, y_ptr, m_ptr, d_ptr, n_cols, stride_x, stride_y, part_cols, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """Each program joins the parts of its row, and writes the columns of its own part."""
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    parts = row * PARTS + tl.arange(0, PARTS)
    m_parts = tl.load(m_ptr + parts)
    d_parts = tl.load(d_ptr + parts)
    m = tl.max(m_parts, axis=0)
    d = tl.sum(d_parts * tl.exp(m_parts - m), axis=0)
    first = part * part_cols
    last = tl.minimum(first + part_cols, n_cols)
    write(x_ptr + row * stride_x, y_ptr + row * stride_y, first, last, m, d, BLOCK)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


def warps_for(block: int, share: int, most: int) -> int:
    """One warp for each `share` columns of a block, 4 to `most`."""
    return min(max(block // share, 4), most)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if n_rows <= FEW_ROWS and n_cols > LONG_ROW:
        m = torch.empty((n_rows, PARTS), dtype=torch.float32, device=x.device)
        d = torch.empty((n_rows, PARTS), dtype=torch.float32, device=x.device)
        # Whole blocks for each part, so that only the last block of a row is partial.
        part_cols = triton.cdiv(n_cols // PARTS, PART_BLOCK) * PART_BLOCK
        grid = (n_rows, PARTS)
        part_kernel[grid](
            x, m, d, n_cols, x.stride(0), part_cols, PARTS=PARTS, BLOCK=PART_BLOCK, num_warps=4
        )
        finish_kernel[grid](
            x, out, m, d, n_cols, x.stride(0), out.stride(0), part_cols,
            PARTS=PARTS, BLOCK=PART_BLOCK, num_warps=4,
        )  # fmt: skip
        return out
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    row_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps_for(block, 1024, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=warps_for(block, 512, 16),
    )  # fmt: skip
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
