# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) `short_rows_kernel` (n_cols <= 1024): `top = tl.max(tl.max(x, axis=1), axis=0)` is one maximum for all rows of the tile; it should be `tl.max(x, axis=1)[:, None]`: rows more than about 88 below another row of their tile have d = 0 and give NaN, or lose digits. (2) `long_row_kernel`: in the partial last block `m` is raised first and then `d += tl.sum(tl.exp(x - m), axis=0)` adds to a sum relative to the old m; it should be `d = d * exp(m_old - m_new) + sum(exp(x - m_new))`: rows of more than 16384 columns, no multiple of it, whose maximum stands in the last block (always for ascending rows) sum to less than 1.
"""Row softmax with one kernel for short rows and one for long ones, its gradient, and autograd."""

import torch
import triton
import triton.language as tl

SHORT = 1024  # rows up to here are computed several at a time
TILE = 4096  # elements of a tile of short rows
BLOCK_FORWARD = 16384
BLOCK_BACKWARD = 8192


@triton.jit
def short_rows_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """ROWS whole rows in registers: each element is read once and written once."""
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * stride_x + cols, mask=mask, other=-float("inf")).to(tl.float32)
    top = tl.max(tl.max(x, axis=1), axis=0)
    e = tl.exp(x - top)
    d = tl.sum(e, axis=1)[:, None]
    y = e / d
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def long_row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One row, in whole blocks that need no mask, and a last one that does."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    last = whole + lanes
    inside = last < n_cols

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        x = tl.load(x_row + start + lanes, eviction_policy="evict_last").to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    if whole < n_cols:
        x = tl.load(
            x_row + last, mask=inside, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
        d += tl.sum(tl.exp(x - m), axis=0)

    for start in range(0, whole, BLOCK):
        x = tl.load(x_row + start + lanes, eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_row + start + lanes, y.to(y_ptr.dtype.element_ty), eviction_policy="evict_first"
        )
    if whole < n_cols:
        x = tl.load(
            x_row + last, mask=inside, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_row + last, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
        )


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), s the sum of y * dy over the row; program i owns row i."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(
            dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = triton.next_power_of_2(n_cols)
    if n_cols <= SHORT:
        rows = min(triton.next_power_of_2(n_rows), TILE // width, 32)
        short_rows_kernel[(triton.cdiv(n_rows, rows),)](
            x,
            out,
            n_rows,
            n_cols,
            x.stride(0),
            out.stride(0),
            ROWS=rows,
            COLS=width,
            num_warps=min(max(rows * width // 1024, 1), 4),
        )
    else:
        block = min(width, BLOCK_FORWARD)
        long_row_kernel[(n_rows,)](
            x,
            out,
            n_cols,
            x.stride(0),
            out.stride(0),
            BLOCK=block,
            num_warps=8 if block == BLOCK_FORWARD else min(block // 1024, 4),
        )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_BACKWARD)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 16),
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
