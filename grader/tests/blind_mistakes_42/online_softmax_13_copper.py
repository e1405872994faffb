# labs/lab2_online_softmax/online_softmax.py | error | Exercise softmax_backward (and softmax): in `softmax_backward_kernel`, `stride_dy.to(tl.int64)` (and the same for `stride_y`, `stride_dx`) raises where a row stride is 1, because an integer argument 1 is a constexpr without `.to`; it should be `row.to(tl.int64) * stride_dy` (or tl.cast). Shows only for a matrix of one column whose rows are adjacent, as (1, 1); all else is right.
"""Online softmax and its gradient with persistent programs: each takes every so-many-th row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
PROGRAMS = 4096  # some for each multiprocessor of any GPU


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Rows pid, pid + programs, pid + 2 * programs, ... of y, the softmax of x."""
    cols = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_row + start + cols, mask=cols < n_cols - start, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        scale = 1.0 / d
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_row + start + cols, mask=cols < n_cols - start, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) * scale
            tl.store(y_row + start + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols - start)
        row += tl.num_programs(0)


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
    BLOCK: tl.constexpr,
):
    """The same rows of dx = y * (dy - sum of y * dy)."""
    cols = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        dy_row = dy_ptr + row * stride_dy.to(tl.int64)
        y_row = y_ptr + row * stride_y.to(tl.int64)
        dx_row = dx_ptr + row * stride_dx.to(tl.int64)
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            dy = tl.load(dy_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            sums += dy * y
        s = tl.sum(sums, axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = cols < n_cols - start
            dy = tl.load(dy_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, rows any distance apart."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=4 if block <= 4096 else 8,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of the input of softmax, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=4 if block <= 2048 else 16,
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
