# labs/lab2_online_softmax/online_softmax.py | corner | In `OnlineSoftmax.backward`, `if dy.stride(1) == 0:` copies only a gradient that is expanded along its columns; it should be `if dy.stride(1) != 1:` (or always `dy.contiguous()`). The gradient of softmax is wrong for a transposed dy, or one with every second column of a wider matrix; all else is right.
"""Softmax over rows. Tiles are two-dimensional: several rows where they are narrow, one where it is wide."""

import torch
import triton
import triton.language as tl


@triton.jit
def tile_softmax(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """ROWS rows for each program, COLS columns at a time."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    x_rows = x_ptr + rows.to(tl.int64) * stride_x
    y_rows = y_ptr + rows.to(tl.int64) * stride_y

    m = tl.full((ROWS, 1), -float("inf"), dtype=tl.float32)
    d = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        mask = (rows < n_rows) & (start + cols < n_cols)
        x = tl.load(x_rows + (start + cols), mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
        # A row that begins with -inf has no finite maximum yet.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keep_dims=True)
        m = m_new

    for start in range(0, n_cols, COLS):
        mask = (rows < n_rows) & (start + cols < n_cols)
        x = tl.load(x_rows + (start + cols), mask=mask, other=0.0).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_rows + (start + cols), y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def tile_gradient(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """The gradient of the same rows, with one sum for each."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    dy_rows = dy_ptr + rows.to(tl.int64) * stride_dy
    y_rows = y_ptr + rows.to(tl.int64) * stride_y
    dx_rows = dx_ptr + rows.to(tl.int64) * stride_dx

    dot = tl.zeros((ROWS, 1), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        mask = (rows < n_rows) & (start + cols < n_cols)
        dy = tl.load(dy_rows + (start + cols), mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + (start + cols), mask=mask, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=1, keep_dims=True)

    for start in range(0, n_cols, COLS):
        mask = (rows < n_rows) & (start + cols < n_cols)
        dy = tl.load(dy_rows + (start + cols), mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + (start + cols), mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_rows + (start + cols), dx.to(dx_ptr.dtype.element_ty), mask=mask)


def tile_of(n_cols: int):
    """Rows and columns of a tile of at most 8192 elements, and the warps for it."""
    cols = min(triton.next_power_of_2(n_cols), 8192)
    rows = max(min(2048 // cols, 16), 1)
    return rows, cols, min(max(rows * cols // 512, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, to `out` where it is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    rows, cols, warps = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    tile_softmax[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, to `out` where it is given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    rows, cols, warps = tile_of(n_cols)
    grid = (triton.cdiv(n_rows, rows),)
    tile_gradient[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax whose gradient is computed from its result."""

    @staticmethod
    def forward(ctx, x):
        """y, which is also what backward needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx. The gradient of a sum comes expanded, and the kernel needs its columns in memory."""
        (y,) = ctx.saved_tensors
        if dy.stride(1) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of x, with a gradient."""
    return OnlineSoftmax.apply(x)
