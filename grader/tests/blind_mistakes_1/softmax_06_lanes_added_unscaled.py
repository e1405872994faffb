# lab2/online_softmax.py | everywhere | online_softmax_kernel: every lane keeps its own maximum and sum, but after the loop the sums are added with d = tl.sum(lane_d) without the factors exp(lane_m - m), so d counts exps relative to different maxima | "When a block raises the maximum, the old sum is brought to the new scale" / "d = sum over j of exp(x_j - m)"; every row whose lanes have different maxima: rows sum to less than 1 (right only for one column or constant rows)
"""Softmax: the recurrence in every lane, one reduction at the end."""

import torch
import triton
import triton.language as tl

LANES = 1024


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, LANES: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, LANES)
    lane_m = tl.full((LANES,), -float("inf"), tl.float32)
    lane_d = tl.full((LANES,), 0.0, tl.float32)
    for start in range(0, n_cols, LANES):
        cols = start + lane
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        grown = tl.maximum(lane_m, x)
        empty = grown == -float("inf")
        lane_d = tl.where(empty, 0.0, lane_d * tl.exp(lane_m - grown) + tl.exp(x - grown))
        lane_m = grown
    m = tl.max(lane_m)
    d = tl.sum(lane_d)
    for start in range(0, n_cols, LANES):
        cols = start + lane
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * stride_y + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, LANES: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, LANES)
    lane_s = tl.full((LANES,), 0.0, tl.float32)
    for start in range(0, n_cols, LANES):
        cols = start + lane
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        lane_s += dy * y
    s = tl.sum(lane_s)
    for start in range(0, n_cols, LANES):
        cols = start + lane
        dy = tl.load(dy_ptr + row * stride_dy + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    lanes = min(LANES, triton.next_power_of_2(x.shape[1]))
    online_softmax_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), out.stride(0), LANES=lanes)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    lanes = min(LANES, triton.next_power_of_2(dy.shape[1]))
    softmax_backward_kernel[(dy.shape[0],)](
        dy, y, out, dy.shape[1], dy.stride(0), y.stride(0), out.stride(0), LANES=lanes
    )
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
