# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel, first loop: lanes past the end of the row hold 0; they are kept out of the maximum with tl.where, but not out of the sum, so tl.sum(tl.exp(x - shift)) counts each of them as exp(0 - m). Rows with a partial last block sum to less than 1 (to 0 where the maximum is far below 0; right only where it is far above 0). It should add tl.where(live, tl.exp(x - shift), 0.0), or load -inf. (2) softmax_forward passes x.stride(0) as the row stride of out, too: where the strides of x and out differ (out padded, or x padded and out new), all rows but the first are stored in a wrong place, also between or behind the rows. It should pass out.stride(0).
"""Softmax over the rows of a matrix, and its gradient."""

import torch
import triton
import triton.language as tl


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i of y is the softmax of row i of x; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_start = x_ptr + row * stride_x
    y_start = y_ptr + row * stride_y
    offsets = tl.arange(0, BLOCK)

    running_max = -float("inf")
    running_sum = 0.0
    for i in range(tl.cdiv(n_cols, BLOCK)):
        col = i * BLOCK + offsets
        live = col < n_cols
        x = tl.load(x_start + col, mask=live, other=0.0).to(tl.float32)
        new_max = tl.maximum(running_max, tl.max(tl.where(live, x, -float("inf")), axis=0))
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        running_sum *= tl.exp(running_max - shift)
        running_sum += tl.sum(tl.exp(x - shift), axis=0)
        running_max = new_max

    for i in range(tl.cdiv(n_cols, BLOCK)):
        col = i * BLOCK + offsets
        live = col < n_cols
        x = tl.load(x_start + col, mask=live, other=0.0).to(tl.float32)
        y = tl.exp(x - running_max) / running_sum
        tl.store(y_start + col, y.to(y_ptr.dtype.element_ty), mask=live)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Row i of dx; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_start = dy_ptr + row * stride_dy
    y_start = y_ptr + row * stride_y
    dx_start = dx_ptr + row * stride_dx
    offsets = tl.arange(0, BLOCK)

    dot = 0.0
    for i in range(tl.cdiv(n_cols, BLOCK)):
        col = i * BLOCK + offsets
        live = col < n_cols
        dy = tl.load(dy_start + col, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_start + col, mask=live, other=0.0).to(tl.float32)
        dot += tl.sum(dy * y, axis=0)

    for i in range(tl.cdiv(n_cols, BLOCK)):
        col = i * BLOCK + offsets
        live = col < n_cols
        dy = tl.load(dy_start + col, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_start + col, mask=live, other=0.0).to(tl.float32)
        tl.store(dx_start + col, ((dy - dot) * y).to(dx_ptr.dtype.element_ty), mask=live)


def block_size(n_cols: int) -> int:
    """A power of two, at most 4096."""
    return min(4096, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    assert out.shape == x.shape, "out must have the shape of x"
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        x.stride(0),
        BLOCK=block_size(n_cols),
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    assert out.shape == dy.shape, "out must have the shape of dy"
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block_size(n_cols),
        num_warps=8,
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
