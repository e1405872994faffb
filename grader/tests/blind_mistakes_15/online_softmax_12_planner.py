# labs/lab2_online_softmax/online_softmax.py | error | forward_plan takes min(n_cols, FORWARD_BLOCK) as the width of a block, which is no power of two for most n_cols, so tl.arange fails. It should be min(triton.next_power_of_2(n_cols), FORWARD_BLOCK).
"""Online softmax. The plan functions choose the width of a block and the number of warps."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row_ptr + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        new = tl.maximum(m, tl.max(x, axis=0))
        zero_or_new = tl.where(new == -float("inf"), 0.0, new)
        d = d * tl.exp(m - zero_or_new) + tl.sum(tl.exp(x - zero_or_new), axis=0)
        m = new
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        x = tl.load(
            x_row_ptr + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_row_ptr + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols, eviction_policy="evict_first"
        )


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def forward_plan(n_cols: int) -> tuple:
    """Width of a block and number of warps of the forward kernel."""
    block = min(n_cols, FORWARD_BLOCK)
    if block == FORWARD_BLOCK:
        return block, 8
    if block >= 4096:
        return block, 4
    if block >= 2048:
        return block, 2
    return block, 1


def backward_plan(n_cols: int) -> tuple:
    """The same for the backward kernel."""
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = 4
    while warps < 32 and warps * 512 < block:
        warps *= 2
    return block, warps


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block, warps = forward_plan(n_cols)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block, warps = backward_plan(n_cols)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    return OnlineSoftmax.apply(x)
