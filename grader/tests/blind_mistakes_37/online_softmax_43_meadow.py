# labs/lab2_online_softmax/online_softmax.py | corner | In narrow_softmax_kernel (forward, used for n_cols <= 1024, several rows in a program) `top = tl.max(x)` is the maximum of the whole tile of rows and not of each row; the shift cancels as long as the rows of a tile are near each other, but a row that lies about 87 or more below another row of its tile loses its digits, and about 104 or more below all its exps are 0, its sum 0 is replaced by 1, and the whole row comes out as 0. Shows only for n_cols <= 1024 with neighbouring rows of very different magnitude (as 37 x 100 with every second row at -256 and below). It should be `tl.max(x, axis=1)[:, None]`.
"""Softmax: one kernel for short rows, which takes several at once, and an online one for all others."""

import torch
import triton
import triton.language as tl

NARROW = 1024  # up to here a row is one block
TILE = 2048  # elements of a tile of short rows
WIDE_BLOCK = 8192
GRADIENT_BLOCK = 8192


@triton.jit
def narrow_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program i owns rows i * ROWS to (i + 1) * ROWS - 1, all columns of them in one tile."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    keep = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x_ptrs = x_ptr + rows[:, None] * stride_x + cols[None, :]
    y_ptrs = y_ptr + rows[:, None] * stride_y + cols[None, :]
    x = tl.load(x_ptrs, mask=keep, other=-float("inf")).to(tl.float32)
    top = tl.max(x)
    e = tl.exp(x - top)
    d = tl.sum(e, axis=1)
    d = tl.where(d == 0.0, 1.0, d)  # rows past the last one hold nothing: no 0 / 0
    tl.store(y_ptrs, (e / d[:, None]).to(y_ptr.dtype.element_ty), mask=keep)


@triton.jit
def wide_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i; maximum and sum are carried from block to block."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ONE_BLOCK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i owns row i; a row of one block is read once and stays in registers."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    offs = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        keep = offs < n_cols
        dy = tl.load(dy_row + offs, mask=keep, other=0.0).to(tl.float32)
        y = tl.load(y_row + offs, mask=keep, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + offs, dx.to(dx_ptr.dtype.element_ty), mask=keep)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            keep = start + offs < n_cols
            dy = tl.load(dy_row + start + offs, mask=keep, other=0.0, eviction_policy="evict_last")
            y = tl.load(y_row + start + offs, mask=keep, other=0.0, eviction_policy="evict_last")
            s += tl.sum(y.to(tl.float32) * dy.to(tl.float32), axis=0)
        for start in range(0, n_cols, BLOCK):
            keep = start + offs < n_cols
            dy = tl.load(dy_row + start + offs, mask=keep, other=0.0, eviction_policy="evict_first")
            y = tl.load(y_row + start + offs, mask=keep, other=0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
            tl.store(dx_row + start + offs, dx.to(dx_ptr.dtype.element_ty), mask=keep)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the columns of x, any row strides."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    if n_cols <= NARROW:
        tile_cols = max(triton.next_power_of_2(n_cols), 16)
        tile_rows = TILE // tile_cols
        narrow_softmax_kernel[(triton.cdiv(n_rows, tile_rows),)](
            x,
            out,
            n_rows,
            n_cols,
            x.stride(0),
            out.stride(0),
            ROWS=tile_rows,
            COLS=tile_cols,
            num_warps=4,
        )
    else:
        block = min(triton.next_power_of_2(n_cols), WIDE_BLOCK)
        wide_softmax_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block <= 4096 else 8
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, any row strides."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), GRADIENT_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ONE_BLOCK=n_cols <= block,
        BLOCK=block,
        num_warps=16 if block == GRADIENT_BLOCK else 8 if block >= 2048 else 4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The differentiable softmax."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the columns of x."""
    return OnlineSoftmax.apply(x)
