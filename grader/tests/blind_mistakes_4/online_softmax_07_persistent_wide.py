# labs/lab2_online_softmax/online_softmax.py | corner | forward_rows: the row number stays int32 and row * x_step, row * y_step overflow when the matrix reaches beyond 2^31 elements (rows far apart); row must be cast to int64 before it is multiplied by a stride, as in backward_rows.
"""Persistent programs, lane by lane."""

import torch
import triton
import triton.language as tl

BLOCK_MAX = 8192
PROGRAMS = 528  # 4 for each SM


@triton.jit
def finite(m):
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def forward_rows(x_ptr, y_ptr, n_rows, n_cols, x_step, y_step, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        xp = x_ptr + row * x_step
        yp = y_ptr + row * y_step
        lane_max = tl.full((BLOCK,), -float("inf"), tl.float32)
        lane_sum = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            valid = start + offs < n_cols
            x = tl.load(xp + start + offs, mask=valid, other=-float("inf")).to(tl.float32)
            newer = tl.maximum(lane_max, x)
            base = finite(newer)
            lane_sum = lane_sum * tl.exp(lane_max - base) + tl.exp(x - base)
            lane_max = newer
        m = tl.max(lane_max, axis=0)
        d = tl.sum(lane_sum * tl.exp(lane_max - m), axis=0)
        for start in range(0, n_cols, BLOCK):
            valid = start + offs < n_cols
            x = tl.load(xp + start + offs, mask=valid, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(yp + start + offs, y.to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def backward_rows(dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, dy_step, y_step, dx_step, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row64 = tl.cast(row, tl.int64)
        acc = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            valid = start + offs < n_cols
            dy = tl.load(dy_ptr + row64 * dy_step + start + offs, mask=valid, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row64 * y_step + start + offs, mask=valid, other=0.0).to(tl.float32)
            acc += dy * y
        dot = tl.sum(acc, axis=0)
        for start in range(0, n_cols, BLOCK):
            valid = start + offs < n_cols
            dy = tl.load(dy_ptr + row64 * dy_step + start + offs, mask=valid, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + row64 * y_step + start + offs, mask=valid, other=0.0).to(tl.float32)
            dx = y * (dy - dot)
            tl.store(dx_ptr + row64 * dx_step + start + offs, dx.to(dx_ptr.dtype.element_ty), mask=valid)


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
