# labs/lab2_online_softmax/online_softmax.py | contract | In `softmax_backward` (host), without `out`: `pitch = triton.cdiv(n_cols, 8) * 8` and `torch.empty_strided((n_rows, n_cols), (pitch, 1), ...)` returns a matrix with gaps between its rows, where the README asks for a new contiguous one; it should be `torch.empty((n_rows, n_cols), ...)`. Shows in calls without `out` where n_cols is no multiple of 8 and there is more than one row, such as 5 x 127; all numbers are right.
"""Softmax over rows of any length and its gradient; rows are dealt out to a fixed number of programs."""

import torch
import triton
import triton.language as tl

BLOCK_FORWARD = 16384
BLOCK_BACKWARD = 16384
PROGRAMS = 2048  # several for each multiprocessor


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program p owns the rows p, p + number of programs, and so on."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row_ptr = x_ptr + row * stride_x
        y_row_ptr = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(
                x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            x = tl.load(
                x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
        row += tl.num_programs(axis=0)


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
    """dx = y * (dy - sum of y * dy) for the rows of a program, dealt out as in the forward pass."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row_ptr = dy_ptr + row * stride_dy
        y_row_ptr = y_ptr + row * stride_y
        dx_row_ptr = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
        row += tl.num_programs(axis=0)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_FORWARD)
    warps = 8 if block == BLOCK_FORWARD else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; it goes to `out` where one is given."""
    n_rows, n_cols = dy.shape
    if out is None:
        # Rows that start at a multiple of 16 bytes are stored with the widest instructions.
        pitch = triton.cdiv(n_cols, 8) * 8
        out = torch.empty_strided((n_rows, n_cols), (pitch, 1), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BLOCK_BACKWARD)
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
        num_warps=clamp(block // 512, 4, 32),
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
        dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
        return softmax_backward(dy.contiguous(), y, out=dx)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
