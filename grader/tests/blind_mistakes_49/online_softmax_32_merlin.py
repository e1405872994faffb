# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `merge`, `return m, d_a * tl.exp(m_a - shift) + d_b` takes the second part as if its sum were already relative to the common maximum; it must be `d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)`. The sum is too large in every row of two or more different values, both in the fold and in `tl.reduce`; rows of one column or of equal values are right.
"""Softmax of a few rows in each program: pairs of maximum and sum, merged by a function for tl.reduce."""

import torch
import triton
import triton.language as tl

ROWS = 4
COLS = 256
BACKWARD_BLOCK = 16384


@triton.jit
def merge(m_a, d_a, m_b, d_b):
    """The maximum and the sum of two parts of a row, from those of each part."""
    m = tl.maximum(m_a, m_b)
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, d_a * tl.exp(m_a - shift) + d_b


@triton.jit
def tile_softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program i owns the rows from i * ROWS on, in tiles of ROWS x COLS."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, COLS)
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    in_rows = rows[:, None] < n_rows

    m = tl.full((ROWS, COLS), -float("inf"), tl.float32)
    d = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + lanes[None, :]
        mask = in_rows & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf")).to(tl.float32)
        m, d = merge(m, d, x, tl.where(mask, 1.0, 0.0))
    top, total = tl.reduce((m, d), 1, merge)

    for start in range(0, n_cols, COLS):
        cols = start + lanes[None, :]
        mask = in_rows & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top[:, None]) / total[:, None]
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - s), where s is the sum of y * dy over the row; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; rows of x and of `out` may be any number of elements apart."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    cols = min(triton.next_power_of_2(n_cols), COLS)
    grid = (triton.cdiv(n_rows, ROWS),)
    tile_softmax_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=ROWS, COLS=cols, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 32)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
