# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In softmax_group_kernel a program owns 4 rows, but `m = -float("inf")` and `d = 0.0` stand before the loop over its rows, so that each row goes on with the maximum and the sum of the rows before it; the first row of each group of 4 is right, the others sum to less than 1 (all cases with more than one row). Both lines belong at the start of the body of `for r in range(0, ROWS)`.
"""Softmax and its gradient; one program takes a few neighbouring rows, one after another."""

import torch
import triton
import triton.language as tl

GROUP = 4
FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def softmax_group_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * ROWS
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for r in range(0, ROWS):
        row = first + r
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = (cols < n_cols) & (row < n_rows)
            x = tl.load(x_row + cols, mask=mask, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = (cols < n_cols) & (row < n_rows)
            x = tl.load(x_row + cols, mask=mask, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_group_backward_kernel(
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
    first = tl.program_id(0).to(tl.int64) * ROWS
    lanes = tl.arange(0, BLOCK)
    for r in range(0, ROWS):
        row = first + r
        total = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = (cols < n_cols) & (row < n_rows)
            dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + cols, mask=mask, other=0.0).to(tl.float32)
            total += y * dy
        s = tl.sum(total, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = (cols < n_cols) & (row < n_rows)
            dy = tl.load(dy_ptr + row * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row * stride_y + cols, mask=mask, other=0.0).to(tl.float32)
            dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
            tl.store(dx_ptr + row * stride_dx + cols, dx, mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    grid = (triton.cdiv(n_rows, GROUP),)
    softmax_group_kernel[grid](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), ROWS=GROUP, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    grid = (triton.cdiv(n_rows, GROUP),)
    softmax_group_backward_kernel[grid](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=GROUP,
        BLOCK=block,
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax that keeps its result for the gradient."""

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
    return OnlineSoftmax.apply(x)
