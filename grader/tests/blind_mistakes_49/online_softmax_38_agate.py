# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_backward_kernel` `products = tl.zeros((BLOCK,), dtype=tl.float32)` stands before `while row < n_rows:`, so that each further row of a persistent program adds to the sum of its earlier rows; it should stand inside of the loop. Shows only with more than 128 rows (149 x 3, 1000 x 3001, 4096 x 4096), from row 128 on.
"""Online softmax and its gradient with persistent programs, which take one row after another."""

import torch
import triton
import triton.language as tl

PROGRAMS = 128  # about one for each multiprocessor
BLOCK = 8192


@triton.jit
def columns(start, n_cols, BLOCK: tl.constexpr):
    """Numbers of the columns of a block, and which of them exist."""
    cols = start + tl.arange(0, BLOCK)
    return cols, cols < n_cols


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of the rows i, i + programs, i + 2 * programs and so on in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        m = tl.full((), -float("inf"), tl.float32)
        d = tl.full((), 0.0, tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols, exists = columns(start, n_cols, BLOCK)
            x = tl.load(x_row + cols, mask=exists, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols, exists = columns(start, n_cols, BLOCK)
            x = tl.load(x_row + cols, mask=exists, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=exists)
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Gradient of the rows i, i + programs, i + 2 * programs and so on in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    products = tl.zeros((BLOCK,), dtype=tl.float32)  # a partial sum of y * dy in each lane
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        for start in range(0, n_cols, BLOCK):
            cols, exists = columns(start, n_cols, BLOCK)
            dy = tl.load(dy_row + cols, mask=exists, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=exists, other=0.0).to(tl.float32)
            products += dy * y
        s = tl.sum(products, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols, exists = columns(start, n_cols, BLOCK)
            dy = tl.load(dy_row + cols, mask=exists, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=exists, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=exists)
        row += tl.num_programs(axis=0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), BLOCK),
        num_warps=4 if n_cols <= 1024 else 16,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=min(triton.next_power_of_2(n_cols), BLOCK),
        num_warps=4 if n_cols <= 1024 else 16,
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
