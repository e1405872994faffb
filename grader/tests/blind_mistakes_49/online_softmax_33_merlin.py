# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_exp2_kernel`, the factor of the old sum in `d = d * tl.exp2(m - shift) + ...` lacks log2(e); it must be `tl.exp2((m - shift) * LOG2E)`. Shows in rows of more than 8192 columns whose maximum rises after the first block (ascending rows, most random long rows); short and descending rows are right.
"""Softmax whose first block is folded before the loop: a row of one block needs no rescaling."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
LOG2E: tl.constexpr = tl.constexpr(1.44269504088896340736)


@triton.jit
def finite(m):
    """A shift that may be subtracted: m, or 0 where nothing but -inf was seen."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def load_row(row_ptr, cols, n_cols):
    """Columns of a row in fp32, -inf behind its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def softmax_exp2_kernel(x_ptr, y_ptr, stride_x, stride_y, n_cols, BLOCK: tl.constexpr):
    """y = 2 ** ((x - m) * log2(e)) / d for the row of this program."""
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    x = load_row(x_row_ptr, lanes, n_cols)
    m = tl.max(x, axis=0)
    d = tl.sum(tl.exp2((x - finite(m)) * LOG2E), axis=0)
    for start in range(BLOCK, n_cols, BLOCK):
        x = load_row(x_row_ptr, start + lanes, n_cols)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = finite(m_new)
        d = d * tl.exp2(m - shift) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new

    share = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = load_row(x_row_ptr, cols, n_cols)
        y = tl.exp2((x - m) * LOG2E) * share
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, n_cols, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy) for the row of this program."""
    row = tl.program_id(0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - total)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    n_rows, n_cols = x.size(0), x.size(1)
    y = x.new_empty((n_rows, n_cols)) if out is None else out
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    num_warps = 4 if block >= 2048 else 2
    softmax_exp2_kernel[(n_rows,)](
        x, y, x.stride(0), y.stride(0), n_cols, BLOCK=block, num_warps=num_warps
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.size(0), dy.size(1)
    dx = dy.new_empty((n_rows, n_cols)) if out is None else out
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    num_warps = max(block // 512, 4)
    softmax_gradient_kernel[(n_rows,)](
        dy, y, dx, dy.stride(0), y.stride(0), dx.stride(0), n_cols, BLOCK=block, num_warps=num_warps
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """Both passes, for autograd."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
