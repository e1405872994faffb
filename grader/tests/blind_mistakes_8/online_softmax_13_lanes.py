# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | The lanes are joined by d = sum(part) although each part is relative to the maximum of its own lane; each must be multiplied by exp(top - m) first.
"""Softmax with a maximum and a sum in every lane; the lanes are put together once a row."""

import torch
import triton
import triton.language as tl

LANES = 1024
NEG = tl.constexpr(-float("inf"))


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    x_lane = x_ptr + row * stride_x + lane
    y_lane = y_ptr + row * stride_y + lane
    # each lane sees the columns lane, lane + BLOCK, lane + 2 * BLOCK, ...
    top = tl.full((BLOCK,), NEG, tl.float32)
    part = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, n_cols, BLOCK):
        x = tl.load(x_lane + at, mask=lane + at < n_cols, other=NEG).to(tl.float32)
        new = tl.maximum(top, x)
        ref = tl.where(new == NEG, 0.0, new)  # a lane that has seen nothing but -inf
        part = part * tl.exp(top - ref) + tl.exp(x - ref)
        top = new
    m = tl.max(top, axis=0)
    d = tl.sum(part, axis=0)
    scale = 1.0 / d
    for at in range(0, n_cols, BLOCK):
        inside = lane + at < n_cols
        x = tl.load(x_lane + at, mask=inside, other=NEG).to(tl.float32)
        tl.store(y_lane + at, (tl.exp(x - m) * scale).to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    dy_lane = dy_ptr + row * stride_dy + lane
    y_lane = y_ptr + row * stride_y + lane
    dx_lane = dx_ptr + row * stride_dx + lane
    part = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, n_cols, BLOCK):
        inside = lane + at < n_cols
        dy = tl.load(dy_lane + at, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_lane + at, mask=inside, other=0.0).to(tl.float32)
        part += dy * y
    s = tl.sum(part, axis=0)
    for at in range(0, n_cols, BLOCK):
        inside = lane + at < n_cols
        dy = tl.load(dy_lane + at, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_lane + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_lane + at, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def lanes_for(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), LANES)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rows, cols = x.shape
    online_softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=lanes_for(cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    rows, cols = y.shape
    softmax_backward_kernel[(rows,)](
        dy, y, out, cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=lanes_for(cols)
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
        dy = dy if dy.stride(1) == 1 else dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
