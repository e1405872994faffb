# lab2/online_softmax.py | honest | - | unusual: split reduction: a 2-D grid of programs writes (m, d) of each chunk of a row to scratch tensors, a second kernel merges the chunks and normalises its own chunk; the backward sum is split the same way
"""Softmax in two launches, parallel along the row."""

import torch
import triton
import triton.language as tl

CHUNK = 1024


@triton.jit
def chunk_stats(x_ptr, m_ptr, d_ptr, n_cols, stride_x, n_chunks, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1)
    cols = k * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    safe = tl.where(m == -float("inf"), 0.0, m)
    tl.store(m_ptr + row * n_chunks + k, m)
    tl.store(d_ptr + row * n_chunks + k, tl.sum(tl.exp(x - safe), axis=0))


@triton.jit
def merge_and_write(x_ptr, y_ptr, m_ptr, d_ptr, n_cols, stride_x, stride_y, n_chunks, BLOCK: tl.constexpr, LIST: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    ks = tl.arange(0, LIST)
    there = ks < n_chunks
    ms = tl.load(m_ptr + row * n_chunks + ks, mask=there, other=-float("inf"))
    m = tl.max(ms, axis=0)
    for k0 in range(LIST, n_chunks, LIST):
        more = tl.load(m_ptr + row * n_chunks + k0 + ks, mask=k0 + ks < n_chunks, other=-float("inf"))
        m = tl.maximum(m, tl.max(more, axis=0))
    d = tl.sum(tl.exp(ms - m) * tl.load(d_ptr + row * n_chunks + ks, mask=there, other=0.0), axis=0)
    for k0 in range(LIST, n_chunks, LIST):
        ok = k0 + ks < n_chunks
        more = tl.load(m_ptr + row * n_chunks + k0 + ks, mask=ok, other=-float("inf"))
        d += tl.sum(tl.exp(more - m) * tl.load(d_ptr + row * n_chunks + k0 + ks, mask=ok, other=0.0), axis=0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    y = tl.exp(x - m) / d
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def chunk_dots(dy_ptr, y_ptr, s_ptr, n_cols, stride_dy, stride_y, n_chunks, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1)
    cols = k * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(s_ptr + row * n_chunks + k, tl.sum(dy * y, axis=0))


@triton.jit
def write_dx(dy_ptr, y_ptr, dx_ptr, s_ptr, n_cols, stride_dy, stride_y, stride_dx, n_chunks, BLOCK: tl.constexpr, LIST: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for k0 in range(0, n_chunks, LIST):
        ks = k0 + tl.arange(0, LIST)
        s += tl.sum(tl.load(s_ptr + row * n_chunks + ks, mask=ks < n_chunks, other=0.0), axis=0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(dx_ptr + row * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def split(n_cols: int):
    """Width of a chunk, number of chunks, width of a list of chunks."""
    block = min(CHUNK, triton.next_power_of_2(n_cols))
    chunks = triton.cdiv(n_cols, block)
    return block, chunks, min(1024, triton.next_power_of_2(chunks))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block, chunks, several = split(n_cols)
    m = torch.empty((n_rows, chunks), dtype=torch.float32, device=x.device)
    d = torch.empty_like(m)
    grid = (n_rows, chunks)
    chunk_stats[grid](x, m, d, n_cols, x.stride(0), chunks, BLOCK=block)
    merge_and_write[grid](x, out, m, d, n_cols, x.stride(0), out.stride(0), chunks, BLOCK=block, LIST=several)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block, chunks, several = split(n_cols)
    s = torch.empty((n_rows, chunks), dtype=torch.float32, device=dy.device)
    grid = (n_rows, chunks)
    chunk_dots[grid](dy, y, s, n_cols, dy.stride(0), y.stride(0), chunks, BLOCK=block)
    write_dx[grid](dy, y, out, s, n_cols, dy.stride(0), y.stride(0), out.stride(0), chunks, BLOCK=block, LIST=several)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y, = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
