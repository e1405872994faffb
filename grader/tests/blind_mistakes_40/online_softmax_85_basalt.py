# labs/lab2_online_softmax/online_softmax.py | corner | In `chunk_result_kernel`, `place = k * n_rows + row` does not fit `place = row * n_chunks + chunk` of `chunk_state_kernel`; it should be `row * n_chunks + k`. Rows are joined with the states of chunks of other rows: only where rows have more than 8192 columns (and at most 1024 chunks) and there are 2 to 511 rows.
"""Softmax over rows. Few long rows are cut into chunks, so that all multiprocessors have work."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 8192
CHUNK = 8192  # columns of a program where a row is cut
FEW_ROWS = 512  # from here on there is one program for each row


@triton.jit
def whole_row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i and reads it twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def chunk_state_kernel(x_ptr, m_ptr, d_ptr, n_cols, stride_x, n_chunks, CHUNK: tl.constexpr):
    """Maximum of chunk k of row i, and the sum relative to it; both are kept in fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    shift = tl.where(m == -float("inf"), 0.0, m)
    place = row * n_chunks + chunk
    tl.store(m_ptr + place, m)
    tl.store(d_ptr + place, tl.sum(tl.exp(x - shift), axis=0))


@triton.jit
def chunk_result_kernel(
    x_ptr,
    y_ptr,
    m_ptr,
    d_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    n_chunks,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """Join the states of all chunks of row i, and normalise chunk k with them."""
    row = tl.program_id(axis=0).to(tl.int64)
    chunk = tl.program_id(axis=1)
    k = tl.arange(0, CHUNKS)
    place = k * n_rows + row
    parts = tl.load(m_ptr + place, mask=k < n_chunks, other=-float("inf"))
    sums = tl.load(d_ptr + place, mask=k < n_chunks, other=0.0)
    m = tl.max(parts, axis=0)
    d = tl.sum(sums * tl.exp(parts - m), axis=0)
    cols = chunk * CHUNK + tl.arange(0, CHUNK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    n_chunks = triton.cdiv(n_cols, CHUNK)
    if n_chunks == 1 or n_chunks > 1024 or n_rows >= FEW_ROWS:
        block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
        warps = 8 if block == BLOCK_LIMIT else 4
        whole_row_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
        )
        return out
    maxima = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=x.device)
    sums = torch.empty((n_rows, n_chunks), dtype=torch.float32, device=x.device)
    grid = (n_rows, n_chunks)
    chunk_state_kernel[grid](x, maxima, sums, n_cols, x.stride(0), n_chunks, CHUNK=CHUNK, num_warps=8)
    chunk_result_kernel[grid](
        x,
        out,
        maxima,
        sums,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        n_chunks,
        CHUNKS=triton.next_power_of_2(n_chunks),
        CHUNK=CHUNK,
        num_warps=8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_LIMIT)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(4, block // 512),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
