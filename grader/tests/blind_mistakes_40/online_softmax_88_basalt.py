# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `softmax_forward`, the launch of `short_rows_kernel` passes `x.stride(0), out.stride(0)` for its parameters `y_stride, x_stride`; it should be `out.stride(0), x.stride(0)`. Shows for rows of up to 8192 columns where x and out have different row strides and there is more than one row. (2) In `fold`, `d * tl.exp(m - shift)` uses the new maximum, so the factor is 1; it should be `tl.exp(m_old - shift)`. Shows in rows of more than 8192 columns where a later block raises the maximum.
"""Softmax with two kernels: one for rows that fit a block, which are read once, and one for longer rows."""

import torch
import triton
import triton.language as tl

ONE_BLOCK = 8192  # the longest row that stays in registers
STEP = 4096  # columns at a time of a longer one


@triton.jit
def short_rows_kernel(
    y_ptr, x_ptr, y_stride, x_stride, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """A program owns ROWS whole rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x_tile = x_ptr + rows[:, None] * x_stride + cols[None, :]
    y_tile = y_ptr + rows[:, None] * y_stride + cols[None, :]
    x = tl.load(x_tile, mask=inside, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=1)
    m = tl.where(rows < n_rows, m, 0.0)
    p = tl.exp(x - m[:, None])
    d = tl.where(rows < n_rows, tl.sum(p, axis=1), 1.0)
    tl.store(y_tile, (p / d[:, None]).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def fold(x, m, d):
    """Fold one more block of a row into its maximum m and its sum d."""
    m_old = m
    m = tl.maximum(m_old, tl.max(x, axis=0))
    shift = tl.where(m == -float("inf"), 0.0, m)
    d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m, d


@triton.jit
def long_row_kernel(y_ptr, x_ptr, y_stride, x_stride, n_cols, BLOCK: tl.constexpr):
    """A program owns a row, and goes over it twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m, d = fold(x, m, d)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first"
        )


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, dy_stride, y_stride, dx_stride, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * dy_stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * dy_stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * y_stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_ptr + row * dx_stride + cols, dx, mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    if n_cols <= ONE_BLOCK:
        cols = triton.next_power_of_2(n_cols)
        rows = max(1, 1024 // cols)
        warps = 8 if cols > 4096 else 4
        short_rows_kernel[(triton.cdiv(n_rows, rows),)](
            out, x, x.stride(0), out.stride(0), n_rows, n_cols, ROWS=rows, COLS=cols, num_warps=warps
        )
    else:
        long_row_kernel[(n_rows,)](out, x, out.stride(0), x.stride(0), n_cols, BLOCK=STEP, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), STEP)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block > 2048 else 4,
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
