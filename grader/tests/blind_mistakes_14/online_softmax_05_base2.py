# labs/lab2_online_softmax/online_softmax.py | corner | In OnlineSoftmax.backward, dy is made contiguous only where `dy.stride(1) == 0`, so a transposed gradient or one of every second column reaches the kernel with columns that lie apart; it should be dy.contiguous() in every case.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = 2 ** (log2(e) * (x[i, :] - m)) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")  # maximum of the columns seen so far
    d = 0.0  # sum of exp(x - m) over the columns seen so far
    for start in range(0, n_cols, BLOCK):
        # BEGIN TODO 1: fold one block of columns into m and d (about 10 lines)
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - base) * LOG2E) + tl.sum(tl.exp2((x - base) * LOG2E), axis=0)
        m = m_new
        # END TODO 1
    for start in range(0, n_cols, BLOCK):
        # BEGIN TODO 2: normalise one block with the final m and d, and store it (about 6 lines)
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        # END TODO 2


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    # BEGIN TODO 3: the sum of y * dy over the row, then dx block by block (about 14 lines)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)  # one sum for each lane, reduced once behind the loop
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        acc += dy * y
    s = tl.sum(acc, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
    # END TODO 3


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    # BEGIN TODO 4: launch one program for each row (about 7 lines)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 4)
    if block == FORWARD_BLOCK:
        warps = 8
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    # END TODO 4
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    # BEGIN TODO 5: launch one program for each row (about 7 lines)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 16)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    # END TODO 5
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
        # BEGIN TODO 6: compute the result, and keep what the gradient needs (about 3 lines)
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y
        # END TODO 6

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        # BEGIN TODO 7: the gradient with respect to x (about 2 lines)
        (y,) = ctx.saved_tensors
        if dy.stride(1) == 0:  # the gradient of a sum is expanded
            dy = dy.contiguous()
        return softmax_backward(dy, y)
        # END TODO 7


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
