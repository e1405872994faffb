# labs/lab2_online_softmax/online_softmax.py | contract | softmax_forward, torch.empty_strided(x.shape, x.stride(), ...): without out the result gets the row stride of x, so it is not contiguous where the rows of x are padded (nor is the result of softmax). The README promises a new contiguous matrix: torch.empty(x.shape, ...).
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384  # the widest blocks whose values stay in registers
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x,  # elements from one row of x to the next
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")  # maximum of the columns seen so far
    d = 0.0  # sum of exp(x - m) over the columns seen so far
    for start in range(0, n_cols, BLOCK):
        # BEGIN TODO 1: fold one block of columns into m and d (about 10 lines)
        # A lane past the end of the row must leave both unchanged.
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp(m - shift)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        # END TODO 1
    for start in range(0, n_cols, BLOCK):
        # BEGIN TODO 2: normalise one block with the final m and d, and store it (about 6 lines)
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + c, mask=c < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(
            y_row_ptr + c, y.to(y_ptr.dtype.element_ty), mask=c < n_cols, eviction_policy="evict_first"
        )
        # END TODO 2


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like dy, the result of the forward pass
    dx_ptr,  # (n_rows, n_cols) like dy
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
    # Products of two fp16 numbers lose half of their digits in fp16: multiply and add in fp32.
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + c, mask=c < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + c, mask=c < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + c, mask=c < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + c, mask=c < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(
            dx_row_ptr + c, dx.to(dx_ptr.dtype.element_ty), mask=c < n_cols, eviction_policy="evict_first"
        )
    # END TODO 3


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
    # BEGIN TODO 4: launch one program for each row (about 7 lines)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    num_warps = clamp(block // 1024, 1, 4) if block < 16384 else 8
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=num_warps
    )
    # END TODO 4
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    # BEGIN TODO 5: launch one program for each row (about 7 lines)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
        # The gradient of a sum is expanded, with stride 0 between columns: make it contiguous.
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)
        # END TODO 7


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
