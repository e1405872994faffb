# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `softmax_forward`, the launch of `narrow_kernel` passes `x.stride(0), x.stride(0)`: it should be `x.stride(0), out.stride(0)`. It shows for up to 1024 columns where x and out have different row strides (padded x, or padded out). (2) In `wide_kernel`, both loops `range(0, n_cols - BLOCK, BLOCK)` leave out the last whole block if n_cols is a multiple of BLOCK: it should be `range(0, n_cols - BLOCK + 1, BLOCK)`. It shows for 2048 columns and for multiples of 4096: the last block is neither counted nor written.
"""Softmax over rows of any length with two kernels: a tile of several narrow rows, or one wide row block by block."""

import torch
import triton
import triton.language as tl

NARROW = 1024  # rows up to here are held whole
TILE = 4096  # elements of a tile of narrow rows
WIDE_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def narrow_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """A program owns ROWS whole rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
    x = tl.where(rows < n_rows, x, 0.0)  # rows that do not exist are not stored, but give no NaN either
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    y = e / tl.sum(e, axis=1)[:, None]
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def fold(m, d, x):
    """Maximum and sum with one more block of columns."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def wide_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """A program owns one row: whole blocks without a mask, and then the rest of the row with one."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    rest = n_cols // BLOCK * BLOCK + lanes
    in_rest = rest < n_cols

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols - BLOCK, BLOCK):
        m, d = fold(m, d, tl.load(x_row_ptr + start + lanes, eviction_policy="evict_last").to(tl.float32))
    last = tl.load(x_row_ptr + rest, mask=in_rest, other=-float("inf")).to(tl.float32)
    m, d = fold(m, d, last)

    tl.store(y_row_ptr + rest, (tl.exp(last - m) / d).to(y_ptr.dtype.element_ty), mask=in_rest)
    for start in range(0, n_cols - BLOCK, BLOCK):
        x = tl.load(x_row_ptr + start + lanes, eviction_policy="evict_first").to(tl.float32)
        tl.store(y_row_ptr + start + lanes, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty))


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - s), s the sum of y * dy over the row; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        dy = tl.load(dy_row_ptr + start + lanes, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        dy = tl.load(dy_row_ptr + start + lanes, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + lanes, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    width = triton.next_power_of_2(n_cols)
    if n_cols <= NARROW:
        rows = min(TILE // width, 16)
        narrow_kernel[(triton.cdiv(n_rows, rows),)](
            x, out, n_rows, n_cols, x.stride(0), x.stride(0), ROWS=rows, COLS=width, num_warps=4
        )
    else:
        wide_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), BLOCK=min(width, WIDE_BLOCK), num_warps=4
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
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
