# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | forward: the sums of the lanes are added up although each is relative to the maximum of its own lane, it must be tl.sum(d * exp(m - top)); the rows sum to less than 1 in every case with more than one column
"""Softmax in which every lane of the program keeps its own maximum and sum; one reduction for each row."""

import torch
import triton
import triton.language as tl

LANES = 4096


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, LANES: tl.constexpr):
    # Lane k sees the columns k, k + LANES, k + 2 * LANES ... Reductions across lanes are expensive
    # (they go through shared memory), so there are none in the loop.
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lane = tl.arange(0, LANES)

    m = tl.full((LANES,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, n_cols, LANES):
        inside = start + lane < n_cols
        x = tl.load(x_ptr + start + lane, mask=inside, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, x)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new

    # join the lanes
    top = tl.max(m, axis=0)
    total = tl.sum(d, axis=0)

    for start in range(0, n_cols, LANES):
        inside = start + lane < n_cols
        x = tl.load(x_ptr + start + lane, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_ptr + start + lane, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, LANES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lane = tl.arange(0, LANES)

    parts = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, n_cols, LANES):
        inside = start + lane < n_cols
        dy = tl.load(dy_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        parts += dy * y
    s = tl.sum(parts, axis=0)

    for start in range(0, n_cols, LANES):
        inside = start + lane < n_cols
        dy = tl.load(dy_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + start + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + start + lane, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=inside)


def lanes_for(n_cols: int) -> int:
    return min(LANES, triton.next_power_of_2(n_cols))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), LANES=lanes_for(n_cols), num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, LANES=lanes_for(n_cols), num_warps=8)
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
