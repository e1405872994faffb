# labs/lab2_online_softmax/online_softmax.py | honest | every lane keeps an online maximum and sum of its own, merged once a row; persistent grid of at most 1056 programs.
"""Online softmax, each lane with a maximum and a sum of its own, merged once at the end of a row. Persistent grid."""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 8192
PROGRAMS = 1056  # 8 for each of the 132 SMs of an H100/H200


@triton.jit
def finite(m):
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def forward_rows(x_ptr, y_ptr, n_rows, n_cols, x_step, y_step, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row64 = tl.cast(row, tl.int64)
        xp = x_ptr + row64 * x_step
        yp = y_ptr + row64 * y_step
        lane_max = tl.full((BLOCK,), -float("inf"), tl.float32)
        lane_sum = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            inside = start + offs < n_cols
            x = tl.load(xp + start + offs, mask=inside, other=-float("inf")).to(tl.float32)
            new = tl.maximum(lane_max, x)
            base = finite(new)
            lane_sum = lane_sum * tl.exp(lane_max - base) + tl.exp(x - base)
            lane_max = new
        m = tl.max(lane_max, axis=0)
        d = tl.sum(lane_sum * tl.exp(lane_max - m), axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = start + offs < n_cols
            x = tl.load(xp + start + offs, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(yp + start + offs, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_rows(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, dy_step, y_step, dx_step, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row64 = tl.cast(row, tl.int64)
        lane_dot = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            inside = start + offs < n_cols
            dy = tl.load(dy_ptr + row64 * dy_step + start + offs, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row64 * y_step + start + offs, mask=inside, other=0.0).to(tl.float32)
            lane_dot += dy * y
        dot = tl.sum(lane_dot, axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = start + offs < n_cols
            dy = tl.load(dy_ptr + row64 * dy_step + start + offs, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row64 * y_step + start + offs, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - dot)
            tl.store(dx_ptr + row64 * dx_step + start + offs, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def launch_options(n_cols):
    block = min(BLOCK_MAX, triton.next_power_of_2(n_cols))
    return {"BLOCK": block, "num_warps": max(1, min(16, block // 512))}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = out if out is not None else torch.empty_like(x)
    n_rows, n_cols = x.shape
    grid = (min(n_rows, PROGRAMS),)
    forward_rows[grid](x, y, n_rows, n_cols, x.stride(0), y.stride(0), **launch_options(n_cols))
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dx = out if out is not None else torch.empty_like(dy)
    n_rows, n_cols = y.shape
    grid = (min(n_rows, PROGRAMS),)
    steps = dy.stride(0), y.stride(0), dx.stride(0)
    backward_rows[grid](dy, y, dx, n_rows, n_cols, *steps, **launch_options(n_cols))
    return dx


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
