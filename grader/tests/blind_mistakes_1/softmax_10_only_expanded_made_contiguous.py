# lab2/online_softmax.py | corner | OnlineSoftmax.backward makes dy contiguous only if dy.stride(1) == 0 (expanded, as from sum()); a transposed gradient or one with every second column (stride(1) > 1) goes to the kernel, which assumes stride 1 between columns | "autograd may hand over a gradient in any layout"; softmax(x).backward(g) with g.stride(1) > 1 and more than one column
"""Softmax in two launches: statistics of pieces of a row, then the result."""

import torch
import triton
import triton.language as tl

PIECE = 2048


@triton.jit
def pieces(x_ptr, m_ptr, d_ptr, n_cols, stride_x, n_pieces, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    piece = tl.program_id(1)
    c = piece * PIECE + tl.arange(0, PIECE)
    x = tl.load(x_ptr + row * stride_x + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=0)
    e = tl.where(x == -float("inf"), 0.0, tl.exp(x - m))
    tl.store(m_ptr + row * n_pieces + piece, m)
    tl.store(d_ptr + row * n_pieces + piece, tl.sum(e, axis=0))


@triton.jit
def finish(x_ptr, y_ptr, m_ptr, d_ptr, n_cols, stride_x, stride_y, n_pieces, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    for k in range(0, n_pieces):
        m = tl.maximum(m, tl.load(m_ptr + row * n_pieces + k))
    d = 0.0
    for k in range(0, n_pieces):
        d += tl.load(d_ptr + row * n_pieces + k) * tl.exp(tl.load(m_ptr + row * n_pieces + k) - m)
    c = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    x = tl.load(x_ptr + row * stride_x + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
    tl.store(y_ptr + row * stride_y + c, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=c < n_cols)


@triton.jit
def gradient(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, PIECE):
        c = start + tl.arange(0, PIECE)
        dy = tl.load(dy_ptr + row * stride_dy + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + c, mask=c < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, PIECE):
        c = start + tl.arange(0, PIECE)
        dy = tl.load(dy_ptr + row * stride_dy + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + c, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=c < n_cols)


def piece_of(n_cols: int) -> int:
    return min(PIECE, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    piece = piece_of(n_cols)
    n_pieces = triton.cdiv(n_cols, piece)
    m = torch.empty((n_rows, n_pieces), dtype=torch.float32, device=x.device)
    d = torch.empty((n_rows, n_pieces), dtype=torch.float32, device=x.device)
    pieces[(n_rows, n_pieces)](x, m, d, n_cols, x.stride(0), n_pieces, PIECE=piece)
    finish[(n_rows, n_pieces)](x, out, m, d, n_cols, x.stride(0), out.stride(0), n_pieces, PIECE=piece)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(y)
    n_rows, n_cols = y.shape
    gradient[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), PIECE=piece_of(n_cols), num_warps=8
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
        if dy.stride(1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
