# labs/lab2_online_softmax/online_softmax.py | corner | In OnlineSoftmax.backward dy is made contiguous only if dy.stride(0) == 0; a transposed gradient, one with every second column, or one expanded along columns only goes to the kernel with a column stride other than 1, which the kernel ignores, so the gradient of softmax() is wrong there. It should be dy.contiguous() always (or where dy.stride(1) != 1).
"""Online softmax, blocks counted by number."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    blocks = tl.cdiv(n_cols, BLOCK)

    running_max = -float("inf")
    running_sum = 0.0
    for b in range(0, blocks):
        cols = b * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        new_max = tl.maximum(running_max, tl.max(x, 0))
        base = tl.where(new_max > -float("inf"), new_max, 0.0)
        running_sum = running_sum * tl.exp(running_max - base) + tl.sum(tl.exp(x - base), 0)
        running_max = new_max

    for b in range(0, blocks):
        cols = b * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        prob = tl.exp(x.to(tl.float32) - running_max) / running_sum
        tl.store(y_row + cols, prob.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    blocks = tl.cdiv(n_cols, BLOCK)

    dot = 0.0
    for b in range(0, blocks):
        cols = b * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        p = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dot += tl.sum(g * p, 0)

    for b in range(0, blocks):
        cols = b * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        p = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + cols, ((g - dot) * p).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    block = clamp(triton.next_power_of_2(cols), 1, FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = dy.shape
    block = clamp(triton.next_power_of_2(cols), 1, BACKWARD_BLOCK)
    softmax_backward_kernel[(rows,)](
        dy, y, out, cols,
        dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=clamp(block // 512, 4, 16),
    )  # fmt: skip
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
        # y.sum() sends an expanded gradient; any other row stride is passed on to the kernel
        if dy.stride(0) == 0:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
