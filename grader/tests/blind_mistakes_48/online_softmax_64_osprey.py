# labs/lab2_online_softmax/online_softmax.py | corner | In `short_rows_kernel`: `(rows * stride_x).to(tl.int64)` and `(rows * stride_y).to(tl.int64)` must be `rows.to(tl.int64) * stride_x` and `rows.to(tl.int64) * stride_y`; the product is int32 and wraps before it is converted. Shows for rows of up to 1024 columns that lie so far apart that row * stride reaches 2^31 (stride itself below 2^31), in x or in out; long rows are right.
"""Softmax with a kernel of its own for short rows, several of which share a program, and one for long rows."""

import torch
import triton
import triton.language as tl

SHORT = 1024  # rows up to this many columns go to the kernel for short rows
TILE = 4096  # elements of a tile of short rows
BLOCK = 16384


@triton.jit
def short_rows_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """A tile of ROWS whole rows: nothing to carry along, and x is read once."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x_offs = (rows * stride_x).to(tl.int64)[:, None] + cols[None, :]
    y_offs = (rows * stride_y).to(tl.int64)[:, None] + cols[None, :]
    x = tl.load(x_ptr + x_offs, mask=inside, other=-float("inf")).to(tl.float32)
    # Rows past the last one hold -inf alone.
    m = tl.where(rows < n_rows, tl.max(x, axis=1), 0.0)
    e = tl.exp(x - m[:, None])
    d = tl.where(rows < n_rows, tl.sum(e, axis=1), 1.0)
    tl.store(y_ptr + y_offs, (e / d[:, None]).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def long_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """The online recurrence; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_row_ptr + cols, dx, mask=inside, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    width = triton.next_power_of_2(n_cols)
    strides = x.stride(0), out.stride(0)
    if n_cols <= SHORT:
        rows = min(TILE // width, triton.next_power_of_2(n_rows), 32)
        grid = (triton.cdiv(n_rows, rows),)
        short_rows_kernel[grid](x, out, n_rows, n_cols, *strides, ROWS=rows, COLS=width, num_warps=4)
    else:
        block = min(width, BLOCK)
        long_rows_kernel[(n_rows,)](
            x, out, n_cols, *strides, BLOCK=block, num_warps=8 if block == BLOCK else 4
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    warps = min(max(block // 512, 4), 32)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
