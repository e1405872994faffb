# lab2/online_softmax.py | honest | - | unusual: a program owns a tile of rows x columns (more rows where rows are short), row mask for the last tile; helper for the pointers; p is masked instead of relying on other=-inf; the autograd function saves x and y and passes out= to softmax_backward
"""Softmax, several rows per program."""

import torch
import triton
import triton.language as tl


@triton.jit
def tile(ptr, rows, cols, stride):
    return ptr + rows[:, None] * stride + cols[None, :]


@triton.jit
def fwd(x_ptr, y_ptr, n_rows, n_cols, sx, sy, R: tl.constexpr, C: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    alive = rows < n_rows
    top = tl.full([R], -float("inf"), dtype=tl.float32)
    total = tl.full([R], 0, dtype=tl.float32)
    for c0 in range(0, n_cols, C):
        cols = c0 + tl.arange(0, C)
        ok = alive[:, None] & (cols < n_cols)[None, :]
        v = tl.load(tile(x_ptr, rows, cols, sx), mask=ok, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(v, 1))
        nothing = higher == -float("inf")
        p = tl.where(ok & (nothing[:, None] == 0), tl.exp(v - higher[:, None]), 0.0)
        keep = tl.where(nothing, 1.0, tl.exp(top - higher))
        total = total * keep + tl.sum(p, 1)
        top = higher
    for c0 in range(0, n_cols, C):
        cols = c0 + tl.arange(0, C)
        ok = alive[:, None] & (cols < n_cols)[None, :]
        v = tl.load(tile(x_ptr, rows, cols, sx), mask=ok, other=0.0).to(tl.float32)
        tl.store(tile(y_ptr, rows, cols, sy), tl.exp(v - top[:, None]) / total[:, None], mask=ok)


@triton.jit
def bwd(g_ptr, y_ptr, o_ptr, n_rows, n_cols, sg, sy, so, R: tl.constexpr, C: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    dot = tl.zeros([R], dtype=tl.float32)
    for c0 in range(0, n_cols, C):
        cols = c0 + tl.arange(0, C)
        ok = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        g = tl.load(tile(g_ptr, rows, cols, sg), mask=ok, other=0.0).to(tl.float32)
        y = tl.load(tile(y_ptr, rows, cols, sy), mask=ok, other=0.0).to(tl.float32)
        dot += tl.sum(g * y, 1)
    for c0 in range(0, n_cols, C):
        cols = c0 + tl.arange(0, C)
        ok = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        g = tl.load(tile(g_ptr, rows, cols, sg), mask=ok, other=0.0).to(tl.float32)
        y = tl.load(tile(y_ptr, rows, cols, sy), mask=ok, other=0.0).to(tl.float32)
        tl.store(tile(o_ptr, rows, cols, so), (g - dot[:, None]) * y, mask=ok)


def plan(n_rows: int, n_cols: int):
    c = min(2048, triton.next_power_of_2(n_cols))
    r = max(1, min(32, 2048 // c))
    return (triton.cdiv(n_rows, r),), {"R": r, "C": c, "num_warps": 4}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = x.size()
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    grid, meta = plan(n_rows, n_cols)
    fwd[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **meta)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n_rows, n_cols = y.size()
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    grid, meta = plan(n_rows, n_cols)
    bwd[grid](dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), **meta)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, y = ctx.saved_tensors
        dense = dy.contiguous()
        dx = torch.empty(dense.shape, dtype=x.dtype, device=x.device)
        softmax_backward(dense, y, out=dx)
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
