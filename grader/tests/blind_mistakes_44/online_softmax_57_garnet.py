# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) `gradient_rows` (softmax_backward): `dx_ptrs = dx_ptr + row * stride_dy + lanes` steps through dx with the row stride of dy, and the launch never passes `out.stride(0)`; wrong and out of bounds where the row strides of dy and out differ (out padded or far, or dy padded and no out), right elsewhere. (2) `OnlineSoftmax.backward` (softmax): `softmax_backward(y, dy.contiguous())` has the arguments exchanged, so dx = dy * (y - s); it should be `softmax_backward(dy.contiguous(), y)`. It shows in all cases of softmax.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 8192


@triton.jit
def fold(x, m, d):
    """The maximum m and the sum d of exp(x - m) with one more block of x."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of one row; the pointers move along the row from block to block."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    m = -float("inf")
    d = 0.0
    left = n_cols - lanes  # above 0 where a lane still has a column
    ptrs = x_ptrs
    for _ in range(0, n_cols, BLOCK):
        m, d = fold(tl.load(ptrs, mask=left > 0, other=-float("inf")).to(tl.float32), m, d)
        ptrs += BLOCK
        left -= BLOCK
    left = n_cols - lanes
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs, mask=left > 0, other=-float("inf")).to(tl.float32)
        tl.store(y_ptrs, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=left > 0)
        x_ptrs += BLOCK
        y_ptrs += BLOCK
        left -= BLOCK


@triton.jit
def gradient_rows(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, BLOCK: tl.constexpr):
    """dx = y * (dy - sum of y * dy) of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dy + lanes
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def sizes(n_cols: int, columns: int):
    """Columns of a block, and warps that have `columns` columns each."""
    block = min(triton.next_power_of_2(n_cols), BLOCK_MAX)
    return block, min(max(block // columns, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block, warps = sizes(n_cols, 1024)
    softmax_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block, warps = sizes(n_cols, 512)
    gradient_rows[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), BLOCK=block, num_warps=warps)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; y is all that the gradient needs."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from y and dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(y, dy.contiguous())


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
