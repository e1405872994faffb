# labs/lab2_online_softmax/online_softmax.py | corner | `with_rows` returns `dy if dy.stride(0) >= dy.shape[1] else dy.contiguous()`: it looks at the distance of the rows only and not at that of the columns; it should ask whether `dy.stride(1) == 1`. It shows in the gradient of `softmax` where dy is every second column of a wider matrix (strides 2 * n_cols and 2); expanded, transposed and padded gradients are right.
"""Softmax whose second sweep runs from the end of a row to its start, while that is still in the cache."""

import torch
import triton
import triton.language as tl

BLOCK_FORWARD = 8192
BLOCK_BACKWARD = 4096


@triton.jit
def load_block(row_ptr, start, n_cols, other, BLOCK: tl.constexpr):
    """Columns start to start + BLOCK - 1 of a row, as fp32."""
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def store_block(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    n_blocks = tl.cdiv(n_cols, BLOCK)

    top = -float("inf")
    total = 0.0
    for k in range(0, n_blocks):
        x = load_block(x_row, k * BLOCK, n_cols, -float("inf"), BLOCK)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        finite_top = tl.where(new_top > -float("inf"), new_top, 0.0)
        total *= tl.exp(top - finite_top)
        total += tl.sum(tl.exp(x - finite_top), axis=0)
        top = new_top

    for k in range(0, n_blocks):
        start = (n_blocks - 1 - k) * BLOCK
        x = load_block(x_row, start, n_cols, -float("inf"), BLOCK)
        store_block(y_row, start, n_cols, tl.exp(x - top) / total, BLOCK)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    n_blocks = tl.cdiv(n_cols, BLOCK)

    products = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, n_blocks):
        dy = load_block(dy_row, k * BLOCK, n_cols, 0.0, BLOCK)
        y = load_block(y_row, k * BLOCK, n_cols, 0.0, BLOCK)
        products += dy * y
    s = tl.sum(products, axis=0)

    for k in range(0, n_blocks):
        start = (n_blocks - 1 - k) * BLOCK
        dy = load_block(dy_row, start, n_cols, 0.0, BLOCK)
        y = load_block(y_row, start, n_cols, 0.0, BLOCK)
        store_block(dx_row, start, n_cols, y * (dy - s), BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_FORWARD)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 4096 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_BACKWARD)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block > 2048 else 4,
    )
    return out


def with_rows(dy: torch.Tensor) -> torch.Tensor:
    """dy itself where its rows lie one behind the other, at any distance, and a copy of it otherwise."""
    return dy if dy.stride(0) >= dy.shape[1] else dy.contiguous()


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(with_rows(dy), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
