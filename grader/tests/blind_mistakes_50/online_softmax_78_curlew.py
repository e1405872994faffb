# labs/lab2_online_softmax/online_softmax.py | error | In `online_softmax_kernel`, `tl.load(x_blocks, boundary_check=(0,), other=-float("inf"), ...)` (both loops): a load from a block pointer takes neither `mask` nor `other`, Triton raises a ValueError at compilation, in all cases. It should load with `padding_option="zero"` and put -inf into lanes past n_cols with `tl.where`.
"""Softmax over rows of any length with block pointers, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 16384


@triton.jit
def row_blocks(ptr, row, stride, n_cols, BLOCK: tl.constexpr):
    """A pointer to the first block of a row; `advance` moves it along the row."""
    return tl.make_block_ptr(
        base=ptr + row * stride,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)

    m = -float("inf")
    d = 0.0
    x_blocks = row_blocks(x_ptr, row, stride_x, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(
            x_blocks,
            boundary_check=(0,),
            other=-float("inf"),
            eviction_policy="evict_last",
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
        x_blocks = tl.advance(x_blocks, (BLOCK,))

    x_blocks = row_blocks(x_ptr, row, stride_x, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, row, stride_y, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(
            x_blocks,
            boundary_check=(0,),
            other=-float("inf"),
            eviction_policy="evict_first",
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_blocks,
            y.to(y_ptr.dtype.element_ty),
            boundary_check=(0,),
            eviction_policy="evict_first",
        )
        x_blocks = tl.advance(x_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s), s the sum of y * dy; lanes behind the row are padded with 0."""
    row = tl.program_id(axis=0).to(tl.int64)

    s = 0.0
    dy_blocks = row_blocks(dy_ptr, row, stride_dy, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, row, stride_y, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        s += tl.sum(y * dy, axis=0)
        dy_blocks = tl.advance(dy_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))

    dy_blocks = row_blocks(dy_ptr, row, stride_dy, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, row, stride_y, n_cols, BLOCK)
    dx_blocks = row_blocks(dx_ptr, row, stride_dx, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_blocks, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_blocks = tl.advance(dy_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))
        dx_blocks = tl.advance(dx_blocks, (BLOCK,))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 32),
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
