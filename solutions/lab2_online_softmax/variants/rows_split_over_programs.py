"""EXPECT PASS from softmax_forward and softmax_backward: rows are split, and a second kernel merges."""

import torch
import triton
import triton.language as tl

PART = 4096  # columns of one program


@triton.jit
def partial_kernel(x_ptr, m_ptr, d_ptr, n_cols, stride_x, PART: tl.constexpr):
    """Maximum and sum of one part of one row, to two scratch matrices of (n_rows, n_parts)."""
    row, part = tl.program_id(0), tl.program_id(1)
    cols = part * PART + tl.arange(0, PART)
    x = tl.load(x_ptr + row.to(tl.int64) * stride_x + cols, mask=cols < n_cols, other=-float("inf"))
    x = x.to(tl.float32)
    m = tl.max(x, axis=0)
    # A part that is all -inf has the sum 0, whatever its shift.
    d = tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), axis=0)
    slot = row * tl.num_programs(1) + part
    tl.store(m_ptr + slot, m)
    tl.store(d_ptr + slot, d)


@triton.jit
def merge_and_write_kernel(
    x_ptr, m_ptr, d_ptr, y_ptr, n_cols, n_parts, stride_x, stride_y, PART: tl.constexpr, PARTS: tl.constexpr
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.arange(0, PARTS)
    m_parts = tl.load(m_ptr + row * n_parts + parts, mask=parts < n_parts, other=-float("inf"))
    d_parts = tl.load(d_ptr + row * n_parts + parts, mask=parts < n_parts, other=0.0)
    m = tl.max(m_parts, axis=0)
    d = tl.sum(d_parts * tl.exp(m_parts - m), axis=0)
    cols = part * PART + tl.arange(0, PART)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * stride_y + cols, tl.exp(x - m) / d, mask=cols < n_cols)


@triton.jit
def partial_dot_kernel(dy_ptr, y_ptr, dot_ptr, n_cols, stride_dy, stride_y, PART: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    cols = part * PART + tl.arange(0, PART)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0)
    dot = tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    tl.store(dot_ptr + row * tl.num_programs(1) + part, dot)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dot_ptr, dx_ptr, n_cols, n_parts, stride_dy, stride_y, stride_dx,
    PART: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    parts = tl.arange(0, PARTS)
    dot = tl.sum(tl.load(dot_ptr + row * n_parts + parts, mask=parts < n_parts, other=0.0), axis=0)
    cols = part * PART + tl.arange(0, PART)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * stride_dx + cols, y * (dy - dot), mask=cols < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    n_parts = triton.cdiv(n_cols, PART)
    m, d = (torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device) for _ in range(2))
    grid, parts = (n_rows, n_parts), triton.next_power_of_2(n_parts)
    partial_kernel[grid](x, m, d, n_cols, x.stride(0), PART=PART)
    merge_and_write_kernel[grid](
        x, m, d, out, n_cols, n_parts, x.stride(0), out.stride(0), PART=PART, PARTS=parts
    )
    return out


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    n_parts = triton.cdiv(n_cols, PART)
    dots = torch.empty((n_rows, n_parts), dtype=torch.float32, device=dy.device)
    grid, parts = (n_rows, n_parts), triton.next_power_of_2(n_parts)
    partial_dot_kernel[grid](dy, y, dots, n_cols, dy.stride(0), y.stride(0), PART=PART)
    gradient_kernel[grid](
        dy, y, dots, out, n_cols, n_parts, dy.stride(0), y.stride(0), out.stride(0), PART=PART, PARTS=parts
    )
    return out
