# labs/lab4_production_slice/softmax.py | honest | no mistake: programs walk over rows in a while loop, each lane has its own maximum and sum, and the lanes are joined once for each row; it must get all points
"""Softmax where each lane of a program keeps its own running maximum, with a gradient in the same style."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op

FLOOR = tl.constexpr(-3.4028234663852886e38)
MOST = 16384  # programs of a launch


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def walk_forward(src, dst, n_rows, step_src, step_dst, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        here = src + row * step_src
        there = dst + row * step_dst
        # every lane: the largest number it has met, and the sum of exp(number - largest)
        peak = tl.full((BLOCK,), FLOOR, dtype=tl.float32)
        mass = tl.zeros((BLOCK,), dtype=tl.float32)
        for first in range(0, N_COLS, BLOCK):
            v = tl.load(here + first + lane, mask=first + lane < N_COLS, other=-float("inf")).to(tl.float32)
            taller = tl.maximum(peak, v)
            mass = mass * tl.exp(peak - taller) + tl.exp(v - taller)
            peak = taller
        # join the lanes
        top = tl.max(peak, axis=0)
        total = tl.sum(mass * tl.exp(peak - top), axis=0)
        for first in range(0, N_COLS, BLOCK):
            v = tl.load(here + first + lane, mask=first + lane < N_COLS, other=-float("inf")).to(tl.float32)
            p = tl.exp(v - top) / total
            tl.store(there + first + lane, p.to(dst.dtype.element_ty), mask=first + lane < N_COLS)
        row += tl.num_programs(axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def walk_backward(
    dy_ptr, y_ptr, dx_ptr, n_rows, step_dy, step_y, step_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    lane = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        a = dy_ptr + row * step_dy + lane
        b = y_ptr + row * step_y + lane
        c = dx_ptr + row * step_dx + lane
        dots = tl.zeros((BLOCK,), dtype=tl.float32)
        for first in range(0, N_COLS, BLOCK):
            inside = first + lane < N_COLS
            dy = tl.load(a + first, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(b + first, mask=inside, other=0.0).to(tl.float32)
            dots += dy * y
        dot = tl.sum(dots, axis=0)
        for first in range(0, N_COLS, BLOCK):
            inside = first + lane < N_COLS
            dy = tl.load(a + first, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(b + first, mask=inside, other=0.0).to(tl.float32)
            tl.store(c + first, (y * (dy - dot)).to(dx_ptr.dtype.element_ty), mask=inside)
        row += tl.num_programs(axis=0)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    launch = on(walk_forward, x)[(min(n_rows, MOST),)]
    launch(x, out, n_rows, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), device=y.device, dtype=y.dtype)
    launch = on(walk_backward, y)[(min(n_rows, MOST),)]
    steps = (dy.stride(0), y.stride(0), out.stride(0))
    launch(dy, y, out, n_rows, *steps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return backward_op(dy.contiguous(), y)


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
