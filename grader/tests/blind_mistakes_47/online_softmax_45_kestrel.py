# labs/lab2_online_softmax/online_softmax.py | two mistakes | Both in softmax_forward. (1) `short_rows_kernel` has one `row_stride` (the host passes `x.stride(0)`) and stores to `y_ptr + places`: out must have its own stride; wrong, and out of bounds, for rows of at most 2048 columns where the strides of x and out differ. (2) In the second loop of `long_rows_kernel`, `cols = (blocks - k) * BLOCK + lanes` should be `(blocks - 1 - k) * BLOCK + lanes`: the first block of every row longer than 2048 is never written.
"""Softmax: short rows by tiles in one pass, long rows online in two sweeps; and the gradient."""

import torch
import triton
import triton.language as tl

SHORT = 2048  # rows up to this length are held in registers as a whole
LONG_BLOCK = 8192


@triton.jit
def short_rows_kernel(
    x_ptr, y_ptr, n_rows, n_cols, row_stride, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Softmax of ROWS whole rows; COLS is at least n_cols."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, COLS)
    places = rows[:, None] * row_stride + cols[None, :]
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    x = tl.load(x_ptr + places, mask=inside, other=-float("inf")).to(tl.float32)
    m = tl.max(x, axis=1)
    m = tl.where(rows < n_rows, m, 0.0)
    terms = tl.exp(x - m[:, None])
    d = tl.where(rows < n_rows, tl.sum(terms, axis=1), 1.0)
    y = terms / d[:, None]
    tl.store(y_ptr + places, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def long_rows_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of one row: m and d by blocks from the left, then y by blocks from the right.

    The blocks that were read last are most likely in the cache, so the second sweep begins with them.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    m = -float("inf")
    d = 0.0
    for k in range(0, blocks):
        cols = k * BLOCK + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for k in range(0, blocks):
        cols = (blocks - k) * BLOCK + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    cols = triton.next_power_of_2(n_cols)
    if cols <= SHORT:
        rows = min(SHORT // cols, 8)
        short_rows_kernel[(triton.cdiv(n_rows, rows),)](
            x, out, n_rows, n_cols, x.stride(0), ROWS=rows, COLS=cols, num_warps=4
        )
    else:
        block = min(cols, LONG_BLOCK)
        long_rows_kernel[(n_rows,)](
            x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=block // 1024
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), LONG_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(4, block // 512),
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
