# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward allocates the scratch for the partial sums with `dy.new_empty((n_rows, n_chunks))`, which inherits the dtype of dy: for fp16 and bf16 the fp32 partial sums of y * dy are rounded to 11 or 8 bits when row_dot_kernel stores them, so dx has too large an error where dy is close to the sum. Shows in softmax_backward and the gradient of softmax for fp16 and bf16 only; fp32 is right. It should be dy.new_empty((n_rows, n_chunks), dtype=torch.float32).
"""Softmax over rows of any length; its gradient spreads a long row over several programs."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
CHUNK = 4096  # columns for one program of the backward pass


@triton.jit
def fold(m, d, x):
    """The maximum and the sum of exp relative to it, after the block x has joined those of m and d."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Whole blocks first, without a mask, and then what is left of the row (possibly nothing)."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = whole + offs
    in_row = rest < n_cols

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + offs).to(tl.float32)
        m, d = fold(m, d, x)
    x_rest = tl.load(x_row_ptr + rest, mask=in_row, other=-float("inf")).to(tl.float32)
    m, d = fold(m, d, x_rest)

    tl.store(y_row_ptr + rest, (tl.exp(x_rest - m) / d).to(y_ptr.dtype.element_ty), mask=in_row)
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row_ptr + start + offs).to(tl.float32)
        tl.store(y_row_ptr + start + offs, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty))


@triton.jit
def row_dot_kernel(
    dy_ptr,
    y_ptr,
    part_ptr,  # (n_rows, n_chunks), contiguous
    n_cols,
    n_chunks,
    stride_dy,
    stride_y,
    BLOCK: tl.constexpr,
):
    """part[i, k] = sum of y * dy over chunk k of row i; program (i, k) owns it."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    in_row = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=in_row, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=in_row, other=0.0).to(tl.float32)
    tl.store(part_ptr + row * n_chunks + chunk, tl.sum(y * dy, axis=0))


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    part_ptr,
    n_cols,
    n_chunks,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,  # power of two, at least n_chunks
):
    """dx = y * (dy - s) for one chunk of one row, where s is the sum of the row's parts."""
    row = tl.program_id(axis=0).to(tl.int64)
    k = tl.arange(0, PARTS)
    parts = tl.load(part_ptr + row * n_chunks + k, mask=k < n_chunks, other=0.0)
    s = tl.sum(parts.to(tl.float32), axis=0)

    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    in_row = cols < n_cols
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=in_row, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=in_row, other=0.0).to(tl.float32)
    dx = y * (dy - s)
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=in_row)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols).

    Two launches: the first leaves one partial sum for each chunk of each row, the second adds them up and
    computes dx.
    """
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, CHUNK)
    n_chunks = triton.cdiv(n_cols, block)
    part = dy.new_empty((n_rows, n_chunks))
    grid = (n_rows, n_chunks)
    warps = clamp(block // 512, 1, 8)
    row_dot_kernel[grid](
        dy, y, part, n_cols, n_chunks, dy.stride(0), y.stride(0), BLOCK=block, num_warps=warps
    )
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        part,
        n_cols,
        n_chunks,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        PARTS=triton.next_power_of_2(n_chunks),
        num_warps=warps,
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
