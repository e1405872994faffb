# lab2/online_softmax.py | everywhere | forward_tiles: tl.sum(p) has no axis, so the exps of all four rows of the tile are added and every row is divided by this common sum | "d = sum over j of exp(x_j - m)" / "a program owns a row"; every matrix with more than one row in a tile of four (a last tile with one row is right)
"""Softmax with four rows in each program."""

import torch
import triton
import triton.language as tl

ROWS = 4
COLS = 1024


@triton.jit
def forward_tiles(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    m = tl.full((ROWS, 1), -float("inf"), tl.float32)
    d = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, n_cols, COLS):
        c = start + tl.arange(0, COLS)[None, :]
        ok = (r < n_rows) & (c < n_cols)
        x = tl.load(x_ptr + r * stride_x + c, mask=ok, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(x - shift)
        d = d * tl.exp(m - shift) + tl.sum(p)
        m = m_new
    for start in range(0, n_cols, COLS):
        c = start + tl.arange(0, COLS)[None, :]
        ok = (r < n_rows) & (c < n_cols)
        x = tl.load(x_ptr + r * stride_x + c, mask=ok, other=0.0).to(tl.float32)
        tl.store(y_ptr + r * stride_y + c, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def backward_tiles(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    s = tl.zeros((ROWS, 1), tl.float32)
    for start in range(0, n_cols, COLS):
        c = start + tl.arange(0, COLS)[None, :]
        ok = (r < n_rows) & (c < n_cols)
        dy = tl.load(dy_ptr + r * stride_dy + c, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + r * stride_y + c, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1, keep_dims=True)
    for start in range(0, n_cols, COLS):
        c = start + tl.arange(0, COLS)[None, :]
        ok = (r < n_rows) & (c < n_cols)
        dy = tl.load(dy_ptr + r * stride_dy + c, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + r * stride_y + c, mask=ok, other=0.0).to(tl.float32)
        tl.store(dx_ptr + r * stride_dx + c, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=ok)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    forward_tiles[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, COLS=COLS, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    grid = (triton.cdiv(n_rows, ROWS),)
    backward_tiles[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=ROWS, COLS=COLS, num_warps=8
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
