# labs/lab2_online_softmax/online_softmax.py | error | In online_softmax_kernel the running maximum m has shape [ROWS, 1], but in the first loop tl.max(x, axis=1) lacks keep_dims=True and has shape [ROWS]; tl.maximum makes [ROWS, ROWS] of the two, and the line after next, x - shift, does not compile (shapes [ROWS, BLOCK] and [ROWS, ROWS] do not go together, as ROWS is 4 and BLOCK at least 16). In every call of softmax_forward and softmax. It should be tl.max(x, axis=1, keep_dims=True).
"""Softmax and its gradient; a program owns a tile of four rows and walks along it."""

import torch
import triton
import triton.language as tl

ROWS = 4
FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 1024


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i owns rows i * ROWS to (i + 1) * ROWS - 1, as far as they exist."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    x_rows = x_ptr + rows * stride_x
    y_rows = y_ptr + rows * stride_y

    m = tl.full([ROWS, 1], -float("inf"), tl.float32)
    d = tl.zeros([ROWS, 1], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + columns
        mask = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        e = tl.exp(x - shift)
        d = d * tl.exp(m - shift) + tl.sum(e, axis=1, keep_dims=True)
        m = m_new

    # Rows that do not exist have seen nothing; their lanes are not stored.
    m = tl.where(m == -float("inf"), 0.0, m)
    d = tl.maximum(d, 1.0)
    for start in range(0, n_cols, BLOCK):
        cols = start + columns
        mask = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


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
):
    """dx = y * (dy - sum(y * dy)), for the same rows."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    y_rows = y_ptr + rows * stride_y
    dx_rows = dx_ptr + rows * stride_dx

    s = tl.zeros([ROWS, 1], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + columns
        mask = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=1, keep_dims=True)

    for start in range(0, n_cols, BLOCK):
        cols = start + columns
        mask = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, ROWS),)
    online_softmax_kernel[grid](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=clamp(block // 256, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; to `out` where one is given."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, ROWS),)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=ROWS,
        BLOCK=block,
        num_warps=clamp(block // 128, 1, 8),
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
        """dx from dy, in whatever layout dy comes."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
