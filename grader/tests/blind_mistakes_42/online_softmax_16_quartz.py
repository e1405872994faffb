# labs/lab2_online_softmax/online_softmax.py | corner | In `normalise_kernel`, `parts = row + chunks * n_rows` reads the pairs as if they lay (n_chunks, n_rows), while `chunk_kernel` stores them at `row * n_chunks + chunk`; it should be `row * n_chunks + chunks`. Rows get m and d of chunks of other rows: wrong for rows longer than 8192 columns if there is more than one row; right for a single row and for short rows.
"""Softmax over rows; long rows are split among several programs. Its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

CHUNK = 8192  # columns of a program; longer rows have several
BACKWARD_BLOCK = 16384


@triton.jit
def short_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = softmax of x[i, :], which fits one block; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    terms = tl.exp(x - tl.max(x, axis=0))
    y = terms / tl.sum(terms, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def chunk_kernel(x_ptr, m_ptr, d_ptr, n_cols, stride_x, n_chunks, BLOCK: tl.constexpr):
    """Maximum m of each chunk of each row, and its sum d of exp(x - m); program (i, c) owns chunk c of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
    ).to(tl.float32)
    m = tl.max(x, axis=0)
    # Any finite shift is right for a chunk of -inf: it adds nothing to the sum.
    d = tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), axis=0)
    tl.store(m_ptr + row * n_chunks + chunk, m)
    tl.store(d_ptr + row * n_chunks + chunk, d)


@triton.jit
def normalise_kernel(
    x_ptr,
    m_ptr,
    d_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    n_chunks,
    n_rows,
    CHUNKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y = exp(x - m) / d for one chunk, with m and d of the whole row, from those of all of its chunks."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    chunks = tl.arange(0, CHUNKS)
    parts = row + chunks * n_rows
    m_parts = tl.load(m_ptr + parts, mask=chunks < n_chunks, other=-float("inf"))
    d_parts = tl.load(d_ptr + parts, mask=chunks < n_chunks, other=0.0)
    m = tl.max(m_parts, axis=0)
    d = tl.sum(d_parts * tl.exp(m_parts - m), axis=0)

    cols = chunk * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
    y = tl.exp(x.to(tl.float32) - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


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
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def warps_for(block: int, columns: int, most: int) -> int:
    """One warp for each so many columns of a block, a power of two from 1 to `most`."""
    return min(max(block // columns, 1), most)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    if n_cols <= CHUNK:
        block = triton.next_power_of_2(n_cols)
        short_rows_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps_for(block, 1024, 8)
        )
        return out

    n_chunks = triton.cdiv(n_cols, CHUNK)
    m = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=x.device)
    d = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=x.device)
    grid = (n_rows, n_chunks)
    chunk_kernel[grid](x, m, d, n_cols, x.stride(0), n_chunks, BLOCK=CHUNK, num_warps=8)
    normalise_kernel[grid](
        x,
        m,
        d,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        n_chunks,
        n_rows,
        CHUNKS=triton.next_power_of_2(n_chunks),
        BLOCK=CHUNK,
        num_warps=8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
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
        num_warps=warps_for(block, 512, 32),
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
