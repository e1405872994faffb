"""EXPECT PASS from softmax_forward and softmax_backward and softmax: short rows in tiles."""

import torch
import triton
import triton.language as tl

TILE_COLS = 1024
TILE_ELEMENTS = 4096
LOOP_COLS = 8192


@triton.jit
def tile_offsets(n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Rows as a column of int64, columns as a row, and which elements exist."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    return rows, cols, (rows < n_rows) & (cols < n_cols)


@triton.jit
def tile_forward_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    rows, cols, inside = tile_offsets(n_rows, n_cols, ROWS, COLS)
    x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=float("-inf")).to(tl.float32)
    # Rows that do not exist are all -inf. Give them a finite maximum.
    top = tl.max(x, axis=1, keep_dims=True)
    top = tl.where(rows < n_rows, top, 0.0)
    e = tl.exp(x - top)
    total = tl.sum(e, axis=1, keep_dims=True)
    total = tl.where(rows < n_rows, total, 1.0)
    tl.store(y_ptr + rows * stride_y + cols, (e / total).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def tile_backward_kernel(
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
    rows, cols, inside = tile_offsets(n_rows, n_cols, ROWS, COLS)
    dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + rows * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
    s = tl.sum(dy * y, axis=1)[:, None]
    tl.store(dx_ptr + rows * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def loop_forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    m = float("-inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x))
        # As long as only -inf was seen, d stays 0 and no exponent is formed from -inf - -inf.
        empty = m_new == float("-inf")
        d = tl.where(empty, 0.0, d * tl.exp(tl.where(empty, 0.0, m - m_new)))
        d += tl.sum(tl.where(x == float("-inf"), 0.0, tl.exp(x - tl.where(empty, 0.0, m_new))))
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def loop_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def _tile(n_cols: int) -> tuple[int, int]:
    """Rows and columns of a tile of about TILE_ELEMENTS elements."""
    cols = triton.next_power_of_2(n_cols)
    return max(1, min(64, TILE_ELEMENTS // cols)), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if x.ndim != 2:
        raise ValueError(f"softmax_forward takes a matrix, not {x.ndim} dimensions")
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    if n_rows == 0 or n_cols == 0:
        return out
    if n_cols <= TILE_COLS:
        ROWS, COLS = _tile(n_cols)
        tile_forward_kernel[(triton.cdiv(n_rows, ROWS),)](
            x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, COLS=COLS, num_warps=4
        )
    else:
        BLOCK = min(LOOP_COLS, triton.next_power_of_2(n_cols))
        loop_forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=8)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if dy.shape != y.shape:
        raise ValueError(f"dy is {tuple(dy.shape)}, y is {tuple(y.shape)}")
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = y.shape
    if n_rows == 0 or n_cols == 0:
        return out
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    if n_cols <= TILE_COLS:
        ROWS, COLS = _tile(n_cols)
        grid = (triton.cdiv(n_rows, ROWS),)
        tile_backward_kernel[grid](dy, y, out, n_rows, n_cols, *strides, ROWS=ROWS, COLS=COLS, num_warps=8)
    else:
        BLOCK = min(LOOP_COLS, triton.next_power_of_2(n_cols))
        loop_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=BLOCK, num_warps=16)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Ties the two together."""

    @staticmethod
    def forward(ctx, x):
        with torch.no_grad():
            y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.stride(1) != 1 or dy.stride(0) < dy.shape[1]:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)


if __name__ == "__main__":
    scores = torch.randn(5, 70)
    print((softmax_forward(scores) - torch.softmax(scores, 1)).abs().max())
