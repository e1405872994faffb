# labs/lab2_online_softmax/online_softmax.py | error | softmax_backward launches with `grid = (n_rows)`, which is the number n_rows and not a tuple; Triton asks for the length of the grid and fails (object of type 'int' has no len()). Every call of softmax_backward, and every gradient of softmax, fails; softmax_forward is right. It should be `grid = (n_rows,)`.
"""Softmax over rows in one pass of statistics and one of output, and its derivative."""

import torch
import triton
import triton.language as tl

BLOCK_LIMIT = 8192


@triton.jit
def row_statistics(x_row, n_cols, BLOCK: tl.constexpr):
    """Maximum of a row, and the sum of exp(x - maximum)."""
    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        block_top = tl.max(x, axis=0)
        new_top = tl.maximum(top, block_top)
        zero_at = tl.where(new_top == -float("inf"), 0.0, new_top)
        total = total * tl.exp(top - zero_at) + tl.sum(tl.exp(x - zero_at), axis=0)
        top = new_top
    return top, total


@triton.jit
def row_dot(a_row, b_row, n_cols, BLOCK: tl.constexpr):
    """Sum of the products of two rows, in fp32."""
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        a = tl.load(a_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        b = tl.load(b_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        acc += a * b
    return tl.sum(acc, axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top, total = row_statistics(x_row, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - top) / total).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = row_dot(dy_row, y_row, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, whose rows may be any number of elements apart."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    BLOCK = min(BLOCK_LIMIT, triton.next_power_of_2(n_cols))
    num_warps = clamp(BLOCK // 1024, 1, 8)
    online_softmax_kernel[lambda meta: (n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=num_warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; rows may be any number of elements apart."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    BLOCK = min(BLOCK_LIMIT, triton.next_power_of_2(n_cols))
    num_warps = clamp(BLOCK // 512, 1, 16)
    grid = (n_rows)
    softmax_backward_kernel[grid](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=num_warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, differentiable."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
