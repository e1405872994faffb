# labs/lab2_online_softmax/online_softmax.py | corner | softmax_forward: WHOLE, which drops the masks of loads and stores in online_softmax_kernel, is set by `n_cols % NARROWEST == 0` (a multiple of 128), not by whether whole blocks fill the row. For a row that is a multiple of 128 but not of its block (384, 640, 1536 in a block of 2048, 24576 in blocks of 16384) the last block reads past the end of the row, counts what it finds there in m and d, and stores into the next row or past the matrix. Rows of any other length are right, as are powers of two from 128 on and multiples of 16384. Should be `n_cols % block == 0`.
"""Softmax over rows of any length, without masks where none is needed."""

import torch
import triton
import triton.language as tl

NARROWEST = 128
FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def load_scores(ptr, cols, n_cols, WHOLE: tl.constexpr):
    """Columns of a row as fp32."""
    if WHOLE:
        x = tl.load(ptr + cols)
    else:
        x = tl.load(ptr + cols, mask=cols < n_cols, other=-float("inf"))
    return x.to(tl.float32)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """y of one row; WHOLE says that no block is partial."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    biggest = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_scores(x_row, cols, n_cols, WHOLE)
        bigger = tl.maximum(biggest, tl.max(x, axis=0))
        ref = tl.where(bigger == -float("inf"), 0.0, bigger)
        total = total * tl.exp(biggest - ref) + tl.sum(tl.exp(x - ref), axis=0)
        biggest = bigger
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_scores(x_row, cols, n_cols, WHOLE)
        y = (tl.exp(x - biggest) / total).to(y_ptr.dtype.element_ty)
        if WHOLE:
            tl.store(y_row + cols, y)
        else:
            tl.store(y_row + cols, y, mask=cols < n_cols)


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
    """dx of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = (y * (dy - total)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_row + cols, dx, mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), NARROWEST, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        WHOLE=n_cols % NARROWEST == 0,
        num_warps=8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), NARROWEST, BACKWARD_BLOCK)
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
