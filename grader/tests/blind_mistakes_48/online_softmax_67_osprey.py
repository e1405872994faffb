# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In `block_softmax_kernel`: `d * tl.exp(m - block_m)` must be `d * tl.exp(m - m_new)`: wrong for rows of more than 2048 columns where a block has a lower maximum than those before it (ascending rows are right). (2) In `scores`: `MASKED`, -1.0e9, stands for lanes past the end and must be -inf: in rows whose values are all below -1e9 (e.g. near -2^90) with a partial block it becomes the maximum, and y is 0 everywhere.
"""Softmax from the local softmaxes of blocks, read through block pointers, its gradient, and both together."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096
MASKED = tl.constexpr(-1.0e9)  # stands for a column that the row does not have
LOWEST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def scores(block_ptr, start, n_cols, BLOCK: tl.constexpr):
    """The scores of a block in fp32; lanes past the end of the row are as if masked out."""
    x = tl.load(block_ptr, boundary_check=(0,), padding_option="zero").to(tl.float32)
    return tl.where(tl.arange(0, BLOCK) + start < n_cols, x, MASKED)


@triton.jit
def block_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i: maximum and sum of each block for itself, merged with those before it."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_blocks = tl.make_block_ptr(
        base=x_ptr + row * stride_x, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    m = tl.full((), LOWEST, tl.float32)
    d = tl.full((), 0.0, tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = scores(x_blocks, start, n_cols, BLOCK)
        # Never -inf, also where the whole block is.
        block_m = tl.maximum(tl.max(x, axis=0), LOWEST)
        block_d = tl.sum(tl.exp(x - block_m), axis=0)
        m_new = tl.maximum(block_m, m)
        d = d * tl.exp(m - block_m) + block_d * tl.exp(block_m - m_new)
        m = m_new
        x_blocks = tl.advance(x_blocks, (BLOCK,))
    x_blocks = tl.make_block_ptr(
        base=x_ptr + row * stride_x, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    y_blocks = tl.make_block_ptr(
        base=y_ptr + row * stride_y, shape=(n_cols,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )
    for start in range(0, n_cols, BLOCK):
        x = scores(x_blocks, start, n_cols, BLOCK)
        y = tl.exp(x - m) / d
        tl.store(y_blocks, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_blocks = tl.advance(x_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    block_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
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
