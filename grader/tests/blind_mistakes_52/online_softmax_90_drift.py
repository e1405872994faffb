# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `join`, the combine function of `tl.reduce`, `total = a_total * exp_of(a_top - base) + b_total` lacks the factor of the second operand; it should be `+ b_total * exp_of(b_top - base)`, as b is a set of columns with a maximum of its own and may be the lower one. The denominator is too large and rows sum to less than 1 in every case, but where all lanes have the same maximum (one column, a constant row).
"""Softmax of rows with one running pair (maximum, sum) for each lane; tl.reduce joins the lanes."""

import torch
import triton
import triton.language as tl

LANES = 1024  # columns that a program folds at a time
BACKWARD_LANES = 4096
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp_of(z):
    """exp(z) by the exp2 unit."""
    return tl.exp2(z * LOG2E)


@triton.jit
def finite_or_zero(top):
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def join(a_top, a_total, b_top, b_total):
    """The pair of two sets of columns from the pair of each."""
    top = tl.maximum(a_top, b_top)
    base = finite_or_zero(top)
    total = a_total * exp_of(a_top - base) + b_total
    return top, total


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, x_pitch, y_pitch, WIDTH: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * x_pitch
    y_row = y_ptr + row * y_pitch
    lane = tl.arange(0, WIDTH)

    tops = tl.full((WIDTH,), -float("inf"), tl.float32)
    totals = tl.zeros((WIDTH,), tl.float32)
    for first in range(0, n_cols, WIDTH):
        col = first + lane
        v = tl.load(x_row + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_last")
        v = v.to(tl.float32)
        raised = tl.maximum(tops, v)
        base = finite_or_zero(raised)
        totals = totals * exp_of(tops - base) + exp_of(v - base)
        tops = raised

    top, total = tl.reduce((tops, totals), 0, join)
    scale = 1.0 / total

    for first in range(0, n_cols, WIDTH):
        col = first + lane
        inside = col < n_cols
        v = tl.load(x_row + col, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = exp_of(v.to(tl.float32) - top) * scale
        tl.store(y_row + col, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, dy_pitch, y_pitch, dx_pitch, WIDTH: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * dy_pitch
    y_row = y_ptr + row * y_pitch
    dx_row = dx_ptr + row * dx_pitch
    lane = tl.arange(0, WIDTH)

    products = tl.zeros((WIDTH,), tl.float32)
    for first in range(0, n_cols, WIDTH):
        col = first + lane
        inside = col < n_cols
        g = tl.load(dy_row + col, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + col, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += g * y
    s = tl.sum(products, axis=0)

    for first in range(0, n_cols, WIDTH):
        col = first + lane
        inside = col < n_cols
        g = tl.load(dy_row + col, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + col, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (g - s)
        tl.store(dx_row + col, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), LANES)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), WIDTH=width, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = y.shape
    width = min(triton.next_power_of_2(n_cols), BACKWARD_LANES)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), WIDTH=width, num_warps=8
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
