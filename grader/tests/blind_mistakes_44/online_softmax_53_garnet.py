# labs/lab2_online_softmax/online_softmax.py | corner | `softmax_backward`: `sums = dy.new_empty((n_rows, n_parts))` has the dtype of dy, so the partial sums of y * dy are rounded to fp16 or bf16 between the two launches; it should be `dtype=torch.float32`. It shows as too large an error in fp16 and bf16 (most in bf16) where the split is used: at most 128 rows of more than 2048 columns. fp32, short rows and many rows are right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

A few long rows would leave most of the GPU idle if each had one program. For them the gradient is computed by two
launches: the first sums y * dy over parts of the rows, the second adds the parts up and computes dx.
"""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 8192
PART = 2048  # columns of a part of a long row
FEW_ROWS = 128  # about as many as there are multiprocessors


@triton.jit
def load_fp32(ptr, cols, n_cols, other):
    """Columns of a row in fp32, and `other` behind its end."""
    return tl.load(ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def put(ptr, cols, n_cols, values):
    """Store columns of a row in its dtype."""
    tl.store(ptr + cols, values.to(ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = exp(x - m) / d, one row for each program."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_fp32(x_ptr, start + lanes, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = load_fp32(x_ptr, start + lanes, n_cols, -float("inf"))
        put(y_ptr, start + lanes, n_cols, tl.exp(x - m) / d)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - s), one row for each program."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        s += tl.sum(load_fp32(dy_ptr, cols, n_cols, 0.0) * load_fp32(y_ptr, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = load_fp32(dy_ptr, cols, n_cols, 0.0)
        put(dx_ptr, cols, n_cols, load_fp32(y_ptr, cols, n_cols, 0.0) * (dy - s))


@triton.jit
def part_sums_kernel(dy_ptr, y_ptr, sums_ptr, n_cols, n_parts, stride_dy, stride_y, PART: tl.constexpr):
    """sums[i, k] = sum of y * dy over part k of row i; program i * n_parts + k."""
    program = tl.program_id(axis=0)
    row = (program // n_parts).to(tl.int64)
    cols = program % n_parts * PART + tl.arange(0, PART)
    dy = load_fp32(dy_ptr + row * stride_dy, cols, n_cols, 0.0)
    y = load_fp32(y_ptr + row * stride_y, cols, n_cols, 0.0)
    tl.store(sums_ptr + program, tl.sum(dy * y, axis=0))


@triton.jit
def part_gradient_kernel(
    dy_ptr,
    y_ptr,
    sums_ptr,
    dx_ptr,
    n_cols,
    n_parts,
    stride_dy,
    stride_y,
    stride_dx,
    PARTS: tl.constexpr,
    PART: tl.constexpr,
):
    """dx in part k of row i, with the sums of all parts of that row; program i * n_parts + k."""
    program = tl.program_id(axis=0)
    row = (program // n_parts).to(tl.int64)
    parts = tl.arange(0, PARTS)
    s = tl.sum(load_fp32(sums_ptr + row * n_parts, parts, n_parts, 0.0), axis=0)
    cols = program % n_parts * PART + tl.arange(0, PART)
    dy = load_fp32(dy_ptr + row * stride_dy, cols, n_cols, 0.0)
    y = load_fp32(y_ptr + row * stride_y, cols, n_cols, 0.0)
    put(dx_ptr + row * stride_dx, cols, n_cols, y * (dy - s))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous; into `out` if given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), BLOCK_MAX)
    warps = min(max(block // 1024, 1), 8)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and the result y, columns contiguous; into `out` if given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    if n_rows > FEW_ROWS or n_cols <= PART:
        block = min(triton.next_power_of_2(n_cols), BLOCK_MAX)
        warps = min(max(block // 512, 1), 16)
        gradient_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
        return out
    n_parts = triton.cdiv(n_cols, PART)
    sums = dy.new_empty((n_rows, n_parts))
    grid = (n_rows * n_parts,)
    part_sums_kernel[grid](dy, y, sums, n_cols, n_parts, *strides[:2], PART=PART, num_warps=4)
    part_gradient_kernel[grid](
        dy,
        y,
        sums,
        out,
        n_cols,
        n_parts,
        *strides,
        PARTS=triton.next_power_of_2(n_parts),
        PART=PART,
        num_warps=4,
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
