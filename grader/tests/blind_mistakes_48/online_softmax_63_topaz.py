# labs/lab2_online_softmax/online_softmax.py | corner | `products_of_chunks` stores its sum at `sums_ptr + chunk * n_rows + row`, but `gradient_of_chunks` loads from `sums_ptr + row * n_chunks + k`; one of the two should have the layout of the other, as `sums_ptr + row * n_chunks + chunk` in the store. Shows in the backward pass where rows are longer than one chunk (4096) and there are two rows or more, as 3 x 16385 or 2 x 40000; one long row or short rows are right.
"""Online softmax, and its gradient in two launches, so that a long row is spread over many programs."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
CHUNK = 4096  # columns that one program of the gradient has


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y of one row; the maximum starts at a finite number, so no difference of two -inf occurs."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -3.0e38  # far below every finite value of a row
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def products_of_chunks(
    dy_ptr, y_ptr, sums_ptr, n_rows, n_cols, n_chunks, stride_dy, stride_y, CHUNK: tl.constexpr
):
    """The sum of y * dy over one chunk of one row."""
    program = tl.program_id(axis=0)
    row = program // n_chunks
    chunk = program % n_chunks
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = cols < n_cols
    dy = tl.load(dy_ptr + row.to(tl.int64) * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row.to(tl.int64) * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(sums_ptr + chunk * n_rows + row, tl.sum(dy * y, axis=0))


@triton.jit
def gradient_of_chunks(
    dy_ptr,
    y_ptr,
    dx_ptr,
    sums_ptr,
    n_cols,
    n_chunks,
    stride_dy,
    stride_y,
    stride_dx,
    CHUNK: tl.constexpr,
    SUMS: tl.constexpr,
):
    """dx of one chunk of one row, whose sum is the sum of the row's chunks."""
    program = tl.program_id(axis=0)
    row = program // n_chunks
    chunk = program % n_chunks
    s = 0.0
    for first in range(0, n_chunks, SUMS):
        k = first + tl.arange(0, SUMS)
        s += tl.sum(tl.load(sums_ptr + row * n_chunks + k, mask=k < n_chunks, other=0.0), axis=0)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = cols < n_cols
    dy = tl.load(dy_ptr + row.to(tl.int64) * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row.to(tl.int64) * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
    dx = y * (dy - s)
    tl.store(dx_ptr + row.to(tl.int64) * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    softmax_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    chunk = min(triton.next_power_of_2(n_cols), CHUNK)
    n_chunks = triton.cdiv(n_cols, chunk)
    warps = 8 if chunk > 2048 else 4
    sums = torch.empty((n_rows * n_chunks,), dtype=torch.float32, device=dy.device)
    grid = (n_rows * n_chunks,)
    products_of_chunks[grid](
        dy, y, sums, n_rows, n_cols, n_chunks, dy.stride(0), y.stride(0), CHUNK=chunk, num_warps=warps
    )
    gradient_of_chunks[grid](
        dy,
        y,
        out,
        sums,
        n_cols,
        n_chunks,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        CHUNK=chunk,
        SUMS=64,
        num_warps=warps,
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
