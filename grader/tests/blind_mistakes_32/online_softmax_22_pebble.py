# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax with one maximum and one sum per lane.

A row that fits one block stays in registers. For a longer row, each lane runs the recurrence over its own columns,
and the lanes are combined once, behind the loop: no reduction across warps inside it.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        live = lanes < n_cols
        x = tl.load(x_row_ptr + lanes, mask=live, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_row_ptr + lanes, y.to(y_ptr.dtype.element_ty), mask=live)
    else:
        tops = tl.full((BLOCK,), -float("inf"), tl.float32)
        totals = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(
                x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
            ).to(tl.float32)
            higher = tl.maximum(tops, x)
            # A lane that has seen nothing but -inf may use any finite shift.
            shift = tl.where(higher == -float("inf"), 0.0, higher)
            totals = totals * tl.exp(tops - shift) + tl.exp(x - shift)
            tops = higher
        m = tl.max(tops, axis=0)
        d = tl.sum(totals * tl.exp(tops - m), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            live = cols < n_cols
            x = tl.load(
                x_row_ptr + cols, mask=live, other=-float("inf"), eviction_policy="evict_first"
            ).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(
                y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=live, eviction_policy="evict_first"
            )


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        live = lanes < n_cols
        dy = tl.load(dy_row_ptr + lanes, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + lanes, mask=live, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row_ptr + lanes, dx.to(dx_ptr.dtype.element_ty), mask=live)
    else:
        products = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            live = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=live, other=0.0, eviction_policy="evict_last").to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=live, other=0.0, eviction_policy="evict_last").to(tl.float32)
            products += y * dy
        s = tl.sum(products, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            live = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=live, other=0.0, eviction_policy="evict_first").to(tl.float32)
            y = tl.load(y_row_ptr + cols, mask=live, other=0.0, eviction_policy="evict_first").to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=live)


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        ONE_BLOCK=n_cols <= block,
        num_warps=clamp(block // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = y.new_empty(y.shape)
    n_rows, n_cols = y.shape
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
        ONE_BLOCK=n_cols <= block,
        num_warps=clamp(block // 512, 1, 8),
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
        # Rows may be any distance apart, also 0; only the columns have to be neighbours.
        neighbours = dy if dy.stride(1) == 1 else dy.contiguous()
        return softmax_backward(neighbours, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
