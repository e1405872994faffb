# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows, with a short path for rows that fit one block, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):
    """Program i owns row i; WHOLE says that the row fits one block, and is then read once only."""
    row = tl.program_id(axis=0).to(tl.int64)
    src = x_ptr + row * stride_x
    dst = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        inside = lanes < n_cols
        x = tl.load(src + lanes, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp2((x - tl.max(x, axis=0)) * LOG2E)
        y = e / tl.sum(e, axis=0)
        tl.store(dst + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        top = -float("inf")
        total = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            x = tl.load(
                src + start + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            higher = tl.maximum(top, tl.max(x, axis=0))
            shift = tl.where(higher > -float("inf"), higher, 0.0)
            total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
            top = higher
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            x = tl.load(
                src + start + lanes, mask=inside, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.exp2((x - top) * LOG2E) / total
            tl.store(dst + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):
    """dx = y * (dy - sum y * dy), one row a program."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        inside = lanes < n_cols
        dy = tl.load(dy_row + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx_row + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        WHOLE=n_cols <= block,
        num_warps=8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        WHOLE=n_cols <= block,
        num_warps=clamp(block // 512, 4, 32),
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
