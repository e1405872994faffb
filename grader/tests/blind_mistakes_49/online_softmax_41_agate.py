# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: persistent programs, (8, 512) tiles, a maximum and a sum in each lane that one `tl.reduce` of a pair with an own `merge` joins at the end of the row, exp2.
"""Softmax with a maximum and a sum in each lane, merged once at the end of the row, and its gradient."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
PROGRAMS = 4224  # each takes every 4224th row
LANES = 512
DEEP = 8  # columns that a lane takes in one turn


@triton.jit
def merge(top_a, total_a, top_b, total_b):
    """Maximum and sum of two sets of columns from those of each."""
    top = tl.maximum(top_a, top_b)
    shift = tl.where(top == -float("inf"), 0.0, top)
    total = total_a * tl.exp2((top_a - shift) * LOG2E) + total_b * tl.exp2((top_b - shift) * LOG2E)
    return top, total


@triton.jit
def tile(DEEP: tl.constexpr, LANES: tl.constexpr):
    """Columns of a (DEEP, LANES) tile, counted from its first."""
    return tl.arange(0, DEEP)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def lanes_forward(
    x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, DEEP: tl.constexpr, LANES: tl.constexpr
):
    """Softmax of the rows i, i + programs, ... in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y
        tops = tl.full((LANES,), -float("inf"), tl.float32)
        totals = tl.full((LANES,), 0.0, tl.float32)
        for start in range(0, n_cols, DEEP * LANES):
            cols = start + tile(DEEP, LANES)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
            x = x.to(tl.float32)
            new_tops = tl.maximum(tops, tl.max(x, axis=0))
            # A lane may have seen nothing but -inf so far, also where its neighbours have seen more.
            shifts = tl.where(new_tops == -float("inf"), 0.0, new_tops)
            weights = tl.exp2((x - shifts[None, :]) * LOG2E)
            totals = totals * tl.exp2((tops - shifts) * LOG2E) + tl.sum(weights, axis=0)
            tops = new_tops
        top, total = tl.reduce((tops, totals), 0, merge)
        for start in range(0, n_cols, DEEP * LANES):
            cols = start + tile(DEEP, LANES)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
            y = tl.exp2((x.to(tl.float32) - top) * LOG2E) / total
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def lanes_backward(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    DEEP: tl.constexpr,
    LANES: tl.constexpr,
):
    """dx = y * (dy - sum of y * dy) for the rows i, i + programs, ... in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        products = tl.full((LANES,), 0.0, tl.float32)
        for start in range(0, n_cols, DEEP * LANES):
            cols = start + tile(DEEP, LANES)
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
            products += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
        product = tl.sum(products, axis=0)
        for start in range(0, n_cols, DEEP * LANES):
            cols = start + tile(DEEP, LANES)
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - product)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def shape_of_tile(n_cols: int) -> dict:
    """Lanes for these columns, and how many of them a lane takes in one turn."""
    lanes = min(triton.next_power_of_2(n_cols), LANES)
    return {"DEEP": min(triton.next_power_of_2(triton.cdiv(n_cols, lanes)), DEEP), "LANES": lanes}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    lanes_forward[(min(n_rows, PROGRAMS),)](
        x, out, n_rows, n_cols, x.stride(0), out.stride(0), num_warps=4, **shape_of_tile(n_cols)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    lanes_backward[(min(n_rows, PROGRAMS),)](
        dy, y, out, n_rows, n_cols, *strides, num_warps=8, **shape_of_tile(n_cols)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; y is kept."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
