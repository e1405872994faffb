# labs/lab2_online_softmax/online_softmax.py | honest | long rows are cut into chunks, one kernel stores (m, d) of each chunk, a second one merges and normalises; short rows in one block.
"""Split softmax: short rows in one block; a long row is cut into chunks, whose (m, d) a second kernel merges."""

import torch
import triton
import triton.language as tl

CHUNK = 8192


@triton.jit
def whole_row(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * stride_x + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + i * stride_y + c, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=c < n_cols)


@triton.jit
def chunk_stats(x_ptr, m_ptr, d_ptr, n_cols, stride_x, n_chunks, BLOCK: tl.constexpr):
    k = tl.program_id(0)
    i = tl.program_id(1).to(tl.int64)
    c = k * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * stride_x + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    shift = tl.where(m == -float("inf"), 0.0, m)
    tl.store(m_ptr + i * n_chunks + k, m)
    tl.store(d_ptr + i * n_chunks + k, tl.sum(tl.exp(x - shift), axis=0))


@triton.jit
def chunk_apply(x_ptr, y_ptr, m_ptr, d_ptr, n_cols, stride_x, stride_y, n_chunks, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    k = tl.program_id(0)
    i = tl.program_id(1).to(tl.int64)
    j = tl.arange(0, PARTS)
    ms = tl.load(m_ptr + i * n_chunks + j, mask=j < n_chunks, other=-float("inf"))
    ds = tl.load(d_ptr + i * n_chunks + j, mask=j < n_chunks, other=0.0)
    m = tl.max(ms, axis=0)
    d = tl.sum(ds * tl.exp(ms - m), axis=0)
    c = k * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * stride_x + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + i * stride_y + c, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=c < n_cols)


@triton.jit
def chunk_dots(dy_ptr, y_ptr, s_ptr, n_cols, stride_dy, stride_y, n_chunks, BLOCK: tl.constexpr):
    k = tl.program_id(0)
    i = tl.program_id(1).to(tl.int64)
    c = k * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + i * stride_dy + c, mask=c < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + i * stride_y + c, mask=c < n_cols, other=0.0).to(tl.float32)
    tl.store(s_ptr + i * n_chunks + k, tl.sum(dy * y, axis=0))


@triton.jit
def chunk_dx(
    dy_ptr, y_ptr, dx_ptr, s_ptr, n_cols, stride_dy, stride_y, stride_dx, n_chunks, BLOCK: tl.constexpr, PARTS: tl.constexpr
):
    k = tl.program_id(0)
    i = tl.program_id(1).to(tl.int64)
    j = tl.arange(0, PARTS)
    s = tl.sum(tl.load(s_ptr + i * n_chunks + j, mask=j < n_chunks, other=0.0), axis=0)
    c = k * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + i * stride_dy + c, mask=c < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + i * stride_y + c, mask=c < n_cols, other=0.0).to(tl.float32)
    tl.store(dx_ptr + i * stride_dx + c, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=c < n_cols)


def warps_for(block):
    return max(1, min(8, block // 512))


def row_batches(n_rows):
    """Axis 1 of a grid ends at 65535."""
    return [(first, min(first + 65535, n_rows)) for first in range(0, n_rows, 65535)]


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    if n_cols <= CHUNK:
        block = triton.next_power_of_2(n_cols)
        whole_row[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps_for(block))
        return out
    n_chunks = triton.cdiv(n_cols, CHUNK)
    parts = triton.next_power_of_2(n_chunks)
    m = torch.empty((n_rows, n_chunks), device=x.device, dtype=torch.float32)
    d = torch.empty((n_rows, n_chunks), device=x.device, dtype=torch.float32)
    for a, b in row_batches(n_rows):
        xs, ys = x[a:b], out[a:b]
        grid = (n_chunks, b - a)
        chunk_stats[grid](xs, m[a:b], d[a:b], n_cols, x.stride(0), n_chunks, BLOCK=CHUNK, num_warps=8)
        chunk_apply[grid](
            xs, ys, m[a:b], d[a:b], n_cols, x.stride(0), out.stride(0), n_chunks, BLOCK=CHUNK, PARTS=parts, num_warps=8
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(CHUNK, triton.next_power_of_2(n_cols))
    n_chunks = triton.cdiv(n_cols, block)
    parts = triton.next_power_of_2(n_chunks)
    s = torch.empty((n_rows, n_chunks), device=dy.device, dtype=torch.float32)
    for a, b in row_batches(n_rows):
        grid = (n_chunks, b - a)
        chunk_dots[grid](
            dy[a:b], y[a:b], s[a:b], n_cols, dy.stride(0), y.stride(0), n_chunks, BLOCK=block, num_warps=warps_for(block)
        )
        chunk_dx[grid](
            dy[a:b], y[a:b], out[a:b], s[a:b], n_cols, dy.stride(0), y.stride(0), out.stride(0), n_chunks,
            BLOCK=block, PARTS=parts, num_warps=warps_for(block),
        )  # fmt: skip
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
