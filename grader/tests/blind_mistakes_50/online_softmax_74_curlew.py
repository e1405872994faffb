# labs/lab2_online_softmax/online_softmax.py | corner | In `tile_softmax_kernel`, `y_base = y_ptr + (rows[:, None] * stride_y).to(tl.int64)` multiplies in int32 and converts afterwards; it should be `rows.to(tl.int64)[:, None] * stride_y`, as for x. Shows only where row times row stride of `out` reaches 2^31 while the stride itself fits int32 (rows of `out` far apart, or a very large matrix): these rows are stored elsewhere, out of bounds.
"""Softmax in tiles of several rows: forward, gradient, and the autograd function of both."""

import torch
import triton
import triton.language as tl

TILE = 16384  # elements of the largest tile, rows times columns
SHORT_TILE = 2048  # elements of a tile that has more than one row


@triton.jit
def tile_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program i owns rows i * ROWS to (i + 1) * ROWS - 1; m and d are blocks of one value for each row."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    row_mask = rows[:, None] < n_rows
    x_base = x_ptr + rows.to(tl.int64)[:, None] * stride_x
    y_base = y_ptr + (rows[:, None] * stride_y).to(tl.int64)

    m = tl.full([ROWS], -float("inf"), tl.float32)
    d = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        mask = row_mask & (cols[None, :] < n_cols)
        x = tl.load(
            x_base + cols[None, :], mask=mask, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new

    # Rows behind the last one saw nothing: give them harmless values.
    m = tl.where(m == -float("inf"), 0.0, m)
    d = tl.where(d == 0.0, 1.0, d)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        mask = row_mask & (cols[None, :] < n_cols)
        x = tl.load(
            x_base + cols[None, :], mask=mask, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(
            y_base + cols[None, :],
            y.to(y_ptr.dtype.element_ty),
            mask=mask,
            eviction_policy="evict_first",
        )


@triton.jit
def tile_gradient_kernel(
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
    """dx = y * (dy - s) for the same rows, s one value for each row."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lanes = tl.arange(0, COLS)[None, :]
    dy_base = dy_ptr + rows * stride_dy
    y_base = y_ptr + rows * stride_y
    dx_base = dx_ptr + rows * stride_dx

    s = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        mask = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_base + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_base + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=1)
    for start in range(0, n_cols, COLS):
        cols = start + lanes
        mask = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_base + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_base + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(
            dx_base + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


def tile_of(n_rows: int, n_cols: int):
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    rows = min(triton.next_power_of_2(n_rows), max(SHORT_TILE // cols, 1), 32)
    return rows, cols


def warps_of(elements: int, each: int, most: int) -> int:
    """One warp for each so many elements of a tile: a power of two."""
    return min(max(elements // each, 1), most)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; a program has several short rows, or one long one."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    rows, cols = tile_of(n_rows, n_cols)
    tile_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=warps_of(rows * cols, 1024, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    rows, cols = tile_of(n_rows, n_cols)
    tile_gradient_kernel[(triton.cdiv(n_rows, rows),)](
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
        num_warps=warps_of(rows * cols, 512, 32),
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
