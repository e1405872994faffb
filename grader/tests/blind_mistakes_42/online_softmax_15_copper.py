# labs/lab2_online_softmax/online_softmax.py | two mistakes | Exercise softmax_backward. (1) In `softmax_backward`, `strides = (dy.stride(0), y.stride(0), y.stride(0))`: the third should be `out.stride(0)`; shows where the row strides of y and out differ and there is more than one row (padded matrices, also without `out` where y is padded). (2) In the same function, `n_blocks = max(n_cols // block, 1)` should be `triton.cdiv(n_cols, block)`; shows for rows longer than 4096 that are no multiple of 4096 (16385, 40000, 20011): the last columns are not in the sum and are not stored; also in softmax.
"""Online softmax: sums stay spread over the lanes of a block, and are added up once at the end of a row."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 4096


@triton.jit
def exp_of_difference(a, b):
    """exp(a - b) by the hardware's exp2."""
    return tl.exp2((a - b) * LOG2E)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Each lane has a maximum and a sum of its own; both are joined after the last block."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    top = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs + start, mask=start + lanes < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, x)
        base = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * exp_of_difference(top, base) + exp_of_difference(x, base)
        top = higher
    m = tl.max(top, axis=0)
    d = tl.sum(total * exp_of_difference(top, m), axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(x_ptrs + start, mask=inside, other=-float("inf")).to(tl.float32)
        y = exp_of_difference(x, m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    n_blocks,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx of one row, in n_blocks blocks of columns."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dx + lanes
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(n_blocks):
        inside = k * BLOCK + lanes < n_cols
        dy = tl.load(dy_ptrs + k * BLOCK, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + k * BLOCK, mask=inside, other=0.0).to(tl.float32)
        total += y * dy
    s = tl.sum(total, axis=0)
    for k in range(n_blocks):
        inside = k * BLOCK + lanes < n_cols
        dy = tl.load(dy_ptrs + k * BLOCK, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptrs + k * BLOCK, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs + k * BLOCK, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), any row stride; to `out`, where it is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and the result y; to `out`, where it is given."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    n_blocks = max(n_cols // block, 1)
    strides = (dy.stride(0), y.stride(0), y.stride(0))
    backward_kernel[(n_rows,)](dy, y, out, n_cols, n_blocks, *strides, BLOCK=block, num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, differentiable."""

    @staticmethod
    def forward(ctx, x):
        """Compute the result and keep it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Compute the gradient with respect to x."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of each row of x."""
    return OnlineSoftmax.apply(x)
