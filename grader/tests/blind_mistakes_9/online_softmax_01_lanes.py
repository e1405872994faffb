# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | Forward keeps one maximum and one sum per lane and joins them by `d = tl.sum(mass, axis=0)`; each lane's sum is relative to its own maximum, so it must be tl.sum(mass * tl.exp(peak - m), axis=0) (with care for lanes at -inf). d is too large and the rows of y sum to less than 1 in every case with more than one column; softmax_backward alone is right.
"""Softmax with a running maximum and a running sum in each lane, joined once at the end of the row."""

import torch
import triton
import triton.language as tl

LANES = 2048


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    src = x_ptr + row * stride_x
    dst = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    peak = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    mass = tl.zeros((BLOCK,), dtype=tl.float32)
    # No reduction in the loop: every lane looks at its own columns only.
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        mass = mass * tl.exp(peak - shift) + tl.exp(x - shift)
        peak = higher
    m = tl.max(peak, axis=0)
    d = tl.sum(mass, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(dst + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), LANES)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    out = torch.empty(y.shape, dtype=y.dtype, device=y.device) if out is None else out
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), LANES)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=4)
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
