# labs/lab2_online_softmax/online_softmax.py | error | `softmax_backward_kernel` (softmax_backward, and softmax): `s = 0` is an int32, and `s += tl.sum(dy * y, axis=0)` makes it fp32 in the loop: Triton's compiler refuses a loop-carried variable that changes its type. It should be `s = 0.0`. It fails in all cases when compiled; the interpreter alone does not notice.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

The second sweep of a row goes from its end to its beginning: what was read last is the likeliest to be cached.
"""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = exp(x - m) / d of one row; m and d are kept lane by lane until the row has ended."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    m = -float("inf")
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(blocks):
        cols = block * BLOCK + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new
    d_row = tl.sum(d, axis=0)
    for block in range(blocks):
        cols = (blocks - 1 - block) * BLOCK + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d_row).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def load_both(dy_row, y_row, cols, n_cols):
    """Columns of dy and y in fp32, and 0 behind the end of the row."""
    dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0)
    y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0)
    return dy.to(tl.float32), y.to(tl.float32)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s) of one row, with s the sum of y * dy."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    blocks = tl.cdiv(n_cols, BLOCK)
    s = 0
    for block in range(blocks):
        dy, y = load_both(dy_row, y_row, block * BLOCK + lanes, n_cols)
        s += tl.sum(dy * y, axis=0)
    for block in range(blocks):
        cols = (blocks - 1 - block) * BLOCK + lanes
        dy, y = load_both(dy_row, y_row, cols, n_cols)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def geometry(n_cols: int):
    """Columns of a block and number of warps for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    if block <= 512:
        return block, 1
    return block, block // 512


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block, warps = geometry(n_cols)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block, warps = geometry(n_cols)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
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
