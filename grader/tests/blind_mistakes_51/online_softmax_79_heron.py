# labs/lab2_online_softmax/online_softmax.py | error | In `strip_softmax_kernel`, `tl.max(x, axis=1, keepdims=True)` and `tl.sum(..., axis=1, keepdims=True)` use NumPy's argument: in Triton it is `keep_dims=True`. TypeError, or CompilationError, in all cases of the forward pass.
"""Softmax over rows of any length with block pointers that move along a few rows at a time."""

import torch
import triton
import triton.language as tl

TILE = 4096  # elements of a tile, at most
MOST_ROWS = 4


@triton.jit
def load_strip(block_ptr):
    """A tile in fp32, 0 outside of the matrix."""
    return tl.load(block_ptr, boundary_check=(0, 1), padding_option="zero").to(tl.float32)


@triton.jit
def strip_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    first_row = tl.program_id(axis=0) * ROWS
    cols = tl.arange(0, COLS)[None, :]

    m = tl.full([ROWS, 1], -float("inf"), tl.float32)
    d = tl.zeros([ROWS, 1], tl.float32)
    x_block = tl.make_block_ptr(
        x_ptr, (n_rows, n_cols), (stride_x, 1), (first_row, 0), (ROWS, COLS), order=(1, 0)
    )
    for start in range(0, n_cols, COLS):
        x = tl.where(start + cols < n_cols, load_strip(x_block), -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=1, keepdims=True))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=1, keepdims=True)
        m = m_new
        x_block = tl.advance(x_block, (0, COLS))

    x_block = tl.make_block_ptr(
        x_ptr, (n_rows, n_cols), (stride_x, 1), (first_row, 0), (ROWS, COLS), order=(1, 0)
    )
    y_block = tl.make_block_ptr(
        y_ptr, (n_rows, n_cols), (stride_y, 1), (first_row, 0), (ROWS, COLS), order=(1, 0)
    )
    for start in range(0, n_cols, COLS):
        y = tl.exp(load_strip(x_block) - m) / d
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))
        x_block = tl.advance(x_block, (0, COLS))
        y_block = tl.advance(y_block, (0, COLS))


@triton.jit
def strip_gradient_kernel(
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
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    s = tl.zeros([ROWS], tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        mask = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1)

    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        mask = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s[:, None])
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def strip_shape(n_cols: int):
    """Rows and columns of a tile, both powers of two."""
    cols = min(triton.next_power_of_2(n_cols), TILE)
    return min(TILE // cols, MOST_ROWS), cols


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    rows, cols = strip_shape(n_cols)
    strip_softmax_kernel[(triton.cdiv(n_rows, rows),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=rows, COLS=cols, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    rows, cols = strip_shape(n_cols)
    strip_gradient_kernel[(triton.cdiv(n_rows, rows),)](
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
        num_warps=8,
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
