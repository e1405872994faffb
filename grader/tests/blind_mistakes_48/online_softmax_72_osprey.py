# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. One kernel with two-dimensional tiles (several short rows or one long row), m and d of shape (ROWS, 1) by keep_dims, a fixed number of programs that take turns at the tiles, and the first tile of each row kept in registers between the sweeps, with loops from the second tile on.
"""Softmax on tiles of rows by columns: many short rows or one long row at a time, by the same kernel.

A fixed number of programs takes turns at the tiles. The first tile of each row stays in registers from the first
sweep to the second, so that a row of up to COLS columns is read once.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 2048
LOWEST = tl.constexpr(-3.4028234663852886e38)


def tile_for(n_rows: int, n_cols: int):
    """Rows and columns of a tile: 4096 columns for long rows, and else about 2048 elements."""
    cols = min(triton.next_power_of_2(n_cols), 4096)
    return max(min(2048 // cols, 16, triton.next_power_of_2(n_rows)), 1), cols


@triton.jit
def tile_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, turns, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Tiles pid, pid + programs and so on, each of ROWS rows. m and d are columns, (ROWS, 1)."""
    cols = tl.arange(0, COLS)[None, :]
    for turn in range(0, turns):
        tile = tl.program_id(axis=0) + turn * tl.num_programs(axis=0)
        rows = (tl.arange(0, ROWS) + tile * ROWS).to(tl.int64)[:, None]
        live = rows < n_rows
        x_rows = x_ptr + rows * stride_x
        y_rows = y_ptr + rows * stride_y
        head = tl.load(x_rows + cols, mask=live & (cols < n_cols), other=-float("inf")).to(tl.float32)
        # Never -inf: a row may begin with it, and rows past the last one hold nothing else.
        m = tl.maximum(tl.max(head, axis=1, keep_dims=True), LOWEST)
        d = tl.sum(tl.exp(head - m), axis=1, keep_dims=True)
        for start in range(COLS, n_cols, COLS):
            there = cols + start
            x = tl.load(x_rows + there, mask=live & (there < n_cols), other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=1, keep_dims=True))
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=1, keep_dims=True)
            m = m_new
        d = tl.where(live, d, 1.0)
        y = tl.exp(head - m) / d
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=live & (cols < n_cols))
        for start in range(COLS, n_cols, COLS):
            there = cols + start
            inside = live & (there < n_cols)
            x = tl.load(x_rows + there, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_rows + there, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, COLS: tl.constexpr
):
    """dx = y * (dy - s) of row i, s the sum of y * dy; the first COLS columns stay in registers here, too."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    cols = tl.arange(0, COLS)
    dy_head = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y_head = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    s = tl.sum(dy_head * y_head, axis=0)
    for start in range(COLS, n_cols, COLS):
        there = cols + start
        dy = tl.load(dy_row + there, mask=there < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + there, mask=there < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    dx = y_head * (dy_head - s)
    tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
    for start in range(COLS, n_cols, COLS):
        there = cols + start
        dy = tl.load(dy_row + there, mask=there < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + there, mask=there < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + there, dx.to(dx_ptr.dtype.element_ty), mask=there < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    rows, cols = tile_for(n_rows, n_cols)
    tiles = triton.cdiv(n_rows, rows)
    programs = min(tiles, PROGRAMS)
    tile_softmax_kernel[(programs,)](
        x,
        out,
        n_rows,
        n_cols,
        triton.cdiv(tiles, programs),
        x.stride(0),
        out.stride(0),
        ROWS=rows,
        COLS=cols,
        num_warps=max(rows * cols // 512, 1),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    cols = min(triton.next_power_of_2(n_cols), 4096)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        COLS=cols,
        num_warps=8 if cols > 1024 else 2,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
