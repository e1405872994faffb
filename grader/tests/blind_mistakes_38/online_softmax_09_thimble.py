# labs/lab2_online_softmax/online_softmax.py | error | In the forward kernel m is a column of shape [ROWS, 1] (the reductions keep their dimension), but d starts as `tl.zeros([ROWS], tl.float32)`: d * exp(m - shift) broadcasts to [ROWS, ROWS], so d changes its shape in the loop and the kernel does not compile (in the interpreter the shapes do not fit, or only by luck with one row). It should be tl.zeros([ROWS, 1], tl.float32).
"""Softmax in tiles of a few rows, with row vectors kept as columns so that they broadcast along the tile."""

import torch
import triton
import triton.language as tl

ROW_TILE = 4
COL_TILE = 2048


@triton.jit
def fwd_tile_kernel(
    X,
    Y,
    n_rows,
    n_cols,
    X_stride,
    Y_stride,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    X += r * X_stride
    Y += r * Y_stride

    m = tl.full([ROWS, 1], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for k in range(0, n_cols, COLS):
        mask = (r < n_rows) & (c < n_cols - k)
        x = tl.load(X + (k + c), mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        m = m_new

    # A row past the end has no maximum and no sum; its lanes are not stored.
    m = tl.where(r < n_rows, m, 0.0)
    d = tl.where(r < n_rows, d, 1.0)
    for k in range(0, n_cols, COLS):
        mask = (r < n_rows) & (c < n_cols - k)
        x = tl.load(X + (k + c), mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(Y + (k + c), y.to(Y.dtype.element_ty), mask=mask)


@triton.jit
def bwd_tile_kernel(
    DY,
    Y,
    DX,
    n_rows,
    n_cols,
    DY_stride,
    Y_stride,
    DX_stride,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    r = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    c = tl.arange(0, COLS)[None, :]
    DY += r * DY_stride
    Y += r * Y_stride
    DX += r * DX_stride

    s = tl.zeros([ROWS, 1], tl.float32)
    for k in range(0, n_cols, COLS):
        mask = (r < n_rows) & (c < n_cols - k)
        dy = tl.load(DY + (k + c), mask=mask, other=0.0).to(tl.float32)
        y = tl.load(Y + (k + c), mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1, keep_dims=True)

    for k in range(0, n_cols, COLS):
        mask = (r < n_rows) & (c < n_cols - k)
        dy = tl.load(DY + (k + c), mask=mask, other=0.0).to(tl.float32)
        y = tl.load(Y + (k + c), mask=mask, other=0.0).to(tl.float32)
        tl.store(DX + (k + c), (y * (dy - s)).to(DX.dtype.element_ty), mask=mask)


def launch_shape(n_rows, n_cols):
    cols = min(COL_TILE, triton.next_power_of_2(n_cols))
    rows = ROW_TILE if cols <= 512 else 1
    return (triton.cdiv(n_rows, rows),), {"ROWS": rows, "COLS": cols, "num_warps": 4}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    grid, options = launch_shape(n_rows, n_cols)
    fwd_tile_kernel[grid](x, out, n_rows, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    grid, options = launch_shape(n_rows, n_cols)
    bwd_tile_kernel[grid](
        dy, y, out, n_rows, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
