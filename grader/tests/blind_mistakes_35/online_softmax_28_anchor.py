# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_backward: `per_program = n_rows // programs` rounds down, so with more than 128 rows and no multiple of 128 the last n_rows % 128 rows are never written (149 rows: 21 rows); it should round up, triton.cdiv(n_rows, programs), with a check row < n_rows in the kernel. (2) softmax_backward_kernel, first loop: `s = tl.sum(y * dy, axis=0)` overwrites s, so it holds the sum of the last block alone: wrong for rows longer than BACKWARD_BLOCK = 16384 columns (also dx of softmax); it should be s += tl.sum(y * dy, axis=0)
"""Online softmax: one program for each row forward, a fixed number of programs backward."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
PROGRAMS = 128


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = softmax of x[i, :] in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offsets, mask=offsets < n_cols, other=-float("inf")).to(tl.float32)
        m_next = tl.maximum(m, tl.max(x, axis=0))
        zero_point = tl.where(m_next == -float("inf"), 0.0, m_next)
        d = d * tl.exp(m - zero_point) + tl.sum(tl.exp(x - zero_point), axis=0)
        m = m_next
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + offsets, mask=offsets < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    per_program,  # rows that a program owns
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """Programs walk through neighbouring rows, one after the other."""
    first = tl.program_id(axis=0).to(tl.int64) * per_program
    for k in range(0, per_program):
        row = first + k
        dy_row_ptr = dy_ptr + row * stride_dy
        y_row_ptr = y_ptr + row * stride_y
        dx_row_ptr = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            offsets = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_row_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
            s = tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            offsets = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_row_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row_ptr + offsets, mask=offsets < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + offsets, dx.to(dx_ptr.dtype.element_ty), mask=offsets < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty(n_rows, n_cols, dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty(n_rows, n_cols, dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    programs = min(n_rows, PROGRAMS)
    per_program = n_rows // programs
    softmax_backward_kernel[(programs,)](
        dy,
        y,
        out,
        n_cols,
        per_program,
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
