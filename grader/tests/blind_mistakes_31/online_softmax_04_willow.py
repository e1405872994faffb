# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax over rows in base 2. The second sweep runs from the last block to the first: it was read last."""

import torch
import triton
import triton.language as tl

FORWARD_LANES = 4096
BACKWARD_LANES = 2048


@triton.jit
def forward_kernel(x_ptr, out_ptr, width, x_step, out_step, LANES: tl.constexpr):
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * x_step
    out_row = out_ptr + row * out_step
    lane = tl.arange(0, LANES)
    blocks = tl.cdiv(width, LANES)

    peak = -float("inf")
    weight = 0.0
    for block in range(0, blocks):
        col = block * LANES + lane
        x = tl.load(x_row + col, mask=col < width, other=-float("inf")).to(tl.float32)
        high = tl.max(x, axis=0)
        if high > -float("inf"):  # a block of nothing but -inf adds nothing
            new_peak = tl.maximum(peak, high)
            kept = weight * tl.exp2((peak - new_peak) * LOG2E)
            weight = kept + tl.sum(tl.exp2((x - new_peak) * LOG2E), axis=0)
            peak = new_peak

    for back in range(0, blocks):
        col = (blocks - 1 - back) * LANES + lane
        inside = col < width
        x = tl.load(x_row + col, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - peak) * LOG2E) / weight
        tl.store(out_row + col, y.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, out_ptr, width, dy_step, y_step, out_step, LANES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * dy_step
    y_row = y_ptr + row * y_step
    out_row = out_ptr + row * out_step
    lane = tl.arange(0, LANES)
    blocks = tl.cdiv(width, LANES)

    inner = 0.0
    for block in range(0, blocks):
        col = block * LANES + lane
        inside = col < width
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + col, mask=inside, other=0.0).to(tl.float32)
        inner += tl.sum(dy * y, axis=0)

    for back in range(0, blocks):
        col = (blocks - 1 - back) * LANES + lane
        inside = col < width
        dy = tl.load(dy_row + col, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + col, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_row + col, (y * (dy - inner)).to(out_ptr.dtype.element_ty), mask=inside)


def new_matrix(like: torch.Tensor) -> torch.Tensor:
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def lanes_for(width: int, most: int) -> int:
    return min(most, triton.next_power_of_2(width))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = new_matrix(x) if out is None else out
    height, width = x.shape
    forward_kernel[(height,)](
        x_ptr=x,
        out_ptr=out,
        width=width,
        x_step=x.stride(0),
        out_step=out.stride(0),
        LANES=lanes_for(width, FORWARD_LANES),
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = new_matrix(dy) if out is None else out
    height, width = dy.shape
    backward_kernel[(height,)](
        dy_ptr=dy,
        y_ptr=y,
        out_ptr=out,
        width=width,
        dy_step=dy.stride(0),
        y_step=y.stride(0),
        out_step=out.stride(0),
        LANES=lanes_for(width, BACKWARD_LANES),
        num_warps=4,
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
