# labs/lab2_online_softmax/online_softmax.py | right | Unusual: two-dimensional tiles of up to 16 rows for narrow matrices, with m, d and s as vectors over rows, taken one after another by up to 4096 persistent programs in a `while` loop with int64 rows; maximum from the lowest finite number, exp2; wide rows in a loop over blocks.
"""Softmax over rows and its gradient on tiles of a few rows, which programs take one after another."""

import torch
import triton
import triton.language as tl

WIDEST = 8192
PROGRAMS = 4096
LOG2E = tl.constexpr(1.4426950408889634)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the lowest finite fp32 number


@triton.jit
def take(ptr, rows, cols, n_rows, n_cols, stride, other):
    """A tile in fp32, with `other` outside of the matrix."""
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(ptr + rows[:, None] * stride + cols[None, :], mask=mask, other=other).to(tl.float32)


@triton.jit
def put(ptr, rows, cols, n_rows, n_cols, stride, tile):
    """Store a tile in the dtype of the matrix."""
    mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    tl.store(ptr + rows[:, None] * stride + cols[None, :], tile.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """m and d are vectors here, with an element for each row of the tile."""
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    lanes = tl.arange(0, BLOCK)
    while first < n_rows:
        rows = first + tl.arange(0, ROWS)
        m = tl.full([ROWS], LOWEST, dtype=tl.float32)
        d = tl.zeros([ROWS], dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            x = take(x_ptr, rows, start + lanes, n_rows, n_cols, stride_x, -float("inf"))
            top = tl.maximum(m, tl.max(x, axis=1))
            d *= tl.exp2((m - top) * LOG2E)
            d += tl.sum(tl.exp2((x - top[:, None]) * LOG2E), axis=1)
            m = top
        d = tl.where(rows < n_rows, d, 1.0)
        for start in range(0, n_cols, BLOCK):
            x = take(x_ptr, rows, start + lanes, n_rows, n_cols, stride_x, -float("inf"))
            y = tl.exp2((x - m[:, None]) * LOG2E) / d[:, None]
            put(y_ptr, rows, start + lanes, n_rows, n_cols, stride_y, y)
        first += tl.num_programs(axis=0) * ROWS


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,  # a row is one block, and stays in registers
):
    """dx of a tile of rows, then of the next one of this program."""
    first = tl.program_id(axis=0).to(tl.int64) * ROWS
    lanes = tl.arange(0, BLOCK)
    while first < n_rows:
        rows = first + tl.arange(0, ROWS)
        if WHOLE:
            g = take(dy_ptr, rows, lanes, n_rows, n_cols, stride_dy, 0.0)
            y = take(y_ptr, rows, lanes, n_rows, n_cols, stride_y, 0.0)
            dx = y * (g - tl.sum(y * g, axis=1)[:, None])
            put(dx_ptr, rows, lanes, n_rows, n_cols, stride_dx, dx)
        else:
            s = tl.zeros([ROWS], dtype=tl.float32)
            for start in range(0, n_cols, BLOCK):
                g = take(dy_ptr, rows, start + lanes, n_rows, n_cols, stride_dy, 0.0)
                y = take(y_ptr, rows, start + lanes, n_rows, n_cols, stride_y, 0.0)
                s += tl.sum(y * g, axis=1)
            for start in range(0, n_cols, BLOCK):
                g = take(dy_ptr, rows, start + lanes, n_rows, n_cols, stride_dy, 0.0)
                y = take(y_ptr, rows, start + lanes, n_rows, n_cols, stride_y, 0.0)
                put(dx_ptr, rows, start + lanes, n_rows, n_cols, stride_dx, y * (g - s[:, None]))
        first += tl.num_programs(axis=0) * ROWS


def tiling(n_rows: int, n_cols: int):
    """Rows and columns of a tile, the number of programs, and of warps, one for each 512 elements."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    rows = min(max(2048 // block, 1), 16)
    programs = min(triton.cdiv(n_rows, rows), PROGRAMS)
    return rows, block, programs, min(max(rows * block // 512, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and of `out` may lie apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    rows, block, programs, warps = tiling(n_rows, n_cols)
    online_softmax_kernel[(programs,)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    rows, block, programs, warps = tiling(n_rows, n_cols)
    softmax_backward_kernel[(programs,)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        WHOLE=n_cols <= block,
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward and softmax_backward for autograd."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy if dy.stride(1) == 1 else dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
