# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `part_kernel` the load has `mask=cols < n_cols`; it must be `mask=cols < end`, else columns of the next part are counted twice. Shows for rows of more than 8192 columns whose parts are no multiple of the block (16385, 20011, 40000), not for 24576, 32768 or 131072. (2) `normalise_kernel` has one `stride` for x and y (`y_row = y_ptr + row * stride`, called with `x.stride(0)`); it must have the stride of out, `out.stride(0)`, for y. Shows wherever x and out have different row strides (padded x, padded out, padded x without out) and there are two or more rows.
"""Softmax in two launches: maxima and sums of parts of a row, then the normalised row."""

import torch
import triton
import triton.language as tl

PART = 8192  # columns that one program has, about
MOST_PARTS = 16
BLOCK_WIDEST = 4096
BACKWARD_BLOCK = 16384


@triton.jit
def part_kernel(
    x_ptr,
    m_ptr,  # (n_rows, n_parts) fp32, contiguous
    d_ptr,  # like m
    n_cols,
    n_parts,
    part,  # columns of a part
    stride,
    BLOCK: tl.constexpr,
):
    """Program (i, k): the maximum m of part k of row i, and the sum d of exp(x - m) over it."""
    row = tl.program_id(axis=0).to(tl.int64)
    k = tl.program_id(axis=1)
    first = k * part
    end = tl.minimum(first + part, n_cols)
    x_row = x_ptr + row * stride
    m = -float("inf")
    d = 0.0
    for start in range(first, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    tl.store(m_ptr + row * n_parts + k, m)
    tl.store(d_ptr + row * n_parts + k, d)


@triton.jit
def normalise_kernel(
    x_ptr,
    y_ptr,
    m_ptr,
    d_ptr,
    n_cols,
    n_parts,
    part,
    stride,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (i, k): part k of row i of y, from the maxima and sums of all parts of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    first = tl.program_id(axis=1) * part
    end = tl.minimum(first + part, n_cols)
    parts = tl.arange(0, PARTS)
    m = tl.load(m_ptr + row * n_parts + parts, mask=parts < n_parts, other=-float("inf"))
    d = tl.load(d_ptr + row * n_parts + parts, mask=parts < n_parts, other=0.0)
    top = tl.max(m, axis=0)
    total = tl.sum(d * tl.exp(m - top), axis=0)
    x_row = x_ptr + row * stride
    y_row = y_ptr + row * stride
    for start in range(first, end, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < end
        x = tl.load(x_row + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


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


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    n_parts = min(triton.cdiv(n_cols, PART), MOST_PARTS)
    part = triton.cdiv(n_cols, n_parts)
    block = min(triton.next_power_of_2(part), BLOCK_WIDEST)
    m = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    d = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    grid = (n_rows, n_parts)
    part_kernel[grid](x, m, d, n_cols, n_parts, part, x.stride(0), BLOCK=block, num_warps=4)
    normalise_kernel[grid](
        x,
        out,
        m,
        d,
        n_cols,
        n_parts,
        part,
        x.stride(0),
        PARTS=triton.next_power_of_2(n_parts),
        BLOCK=block,
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, *strides, BLOCK=block, num_warps=min(max(block // 512, 4), 32)
    )
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
