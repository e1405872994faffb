# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_fwd, second loop: exp2(x * LOG2E - m) scales x by log2(e) but subtracts the unscaled maximum; must be exp2((x - m) * LOG2E).
"""Softmax with 2-D tiles: short rows share one program. Base-2 exponentials as in flash attention."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
MAX_COLS = 16384
TILE = 4096  # numbers in one tile, if the rows are short


@triton.jit
def softmax_fwd(X, Y, n_rows, n_cols, sx, sy, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    m = tl.full((ROWS, 1), -float("inf"), tl.float32)
    l = tl.zeros((ROWS, 1), tl.float32)
    for c0 in range(0, n_cols, COLS):
        cols = c0 + lanes
        ok = (rows < n_rows) & (cols < n_cols)
        x = tl.load(X + rows * sx + cols, mask=ok, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        ref = tl.where(m_new == -float("inf"), 0.0, m_new)
        alpha = tl.exp2((m - ref) * LOG2E)
        l = l * alpha + tl.sum(tl.exp2((x - ref) * LOG2E), axis=1, keep_dims=True)
        m = m_new
    m = tl.where(rows < n_rows, m, 0.0)
    inv = 1.0 / tl.where(rows < n_rows, l, 1.0)
    for c0 in range(0, n_cols, COLS):
        cols = c0 + lanes
        ok = (rows < n_rows) & (cols < n_cols)
        x = tl.load(X + rows * sx + cols, mask=ok, other=-float("inf")).to(tl.float32)
        p = tl.exp2(x * LOG2E - m) * inv
        tl.store(Y + rows * sy + cols, p.to(Y.dtype.element_ty), mask=ok)


@triton.jit
def softmax_bwd(DY, Y, DX, n_rows, n_cols, sdy, sy, sdx, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    s = tl.zeros((ROWS, 1), tl.float32)
    for c0 in range(0, n_cols, COLS):
        cols = c0 + lanes
        ok = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(DY + rows * sdy + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(Y + rows * sy + cols, mask=ok, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1, keep_dims=True)
    for c0 in range(0, n_cols, COLS):
        cols = c0 + lanes
        ok = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(DY + rows * sdy + cols, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(Y + rows * sy + cols, mask=ok, other=0.0).to(tl.float32)
        tl.store(DX + rows * sdx + cols, (y * (dy - s)).to(DX.dtype.element_ty), mask=ok)


def plan(n_rows, n_cols):
    """(rows of a tile, columns of a tile, warps)"""
    cols = min(MAX_COLS, triton.next_power_of_2(n_cols))
    rows = max(1, min(TILE // cols, triton.next_power_of_2(n_rows)))
    return rows, cols, min(8, max(1, rows * cols // 1024))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, cols, warps = plan(n_rows, n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_fwd[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, cols, warps = plan(n_rows, n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    softmax_bwd[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        y = ctx.saved_tensors[0]
        return softmax_backward(grad_y.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
