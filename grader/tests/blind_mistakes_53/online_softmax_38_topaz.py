# labs/lab2_online_softmax/online_softmax.py | contract | In softmax_backward `torch.empty_strided(dy.shape, dy.stride(), ...)` gives the new matrix the row stride of dy; it should be `torch.empty(dy.shape, ...)`. The numbers are right, but without `out` and with gaps between the rows of dy the result is not contiguous.
"""Online softmax and its gradient by a fixed number of programs, which step through the rows."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1056  # eight for each of 132 multiprocessors
WIDEST = 4096


@triton.jit
def forward_rows(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0)
    lanes = tl.arange(0, BLOCK)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, cols < n_cols, -float("inf"), eviction_policy="evict_last")
            x = x.to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, 0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), 0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, cols < n_cols, -float("inf"), eviction_policy="evict_first")
            y = tl.exp(x.to(tl.float32) - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), cols < n_cols)
        row += step


@triton.jit
def backward_rows(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0)
    lanes = tl.arange(0, BLOCK)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, cols < n_cols, 0.0, eviction_policy="evict_last")
            y = tl.load(y_row + cols, cols < n_cols, 0.0, eviction_policy="evict_last")
            s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), 0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            dy = tl.load(dy_row + cols, cols < n_cols, 0.0, eviction_policy="evict_first")
            y = tl.load(y_row + cols, cols < n_cols, 0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), cols < n_cols)
        row += step


def block_of(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = block_of(n_cols)
    forward_rows[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(block // 1024, 1),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and y, both with any row stride."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty_strided(dy.shape, dy.stride(), dtype=dy.dtype, device=dy.device)
    block = block_of(n_cols)
    backward_rows[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=max(block // 512, 1),
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols)."""
    return OnlineSoftmax.apply(x)
