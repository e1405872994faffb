# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax where each lane of a block runs the online recurrence on its own, with one exp for each element.

Of the two factors exp(m - m_new) and exp(x - m_new) one is always 1, and the other is exp(-|x - m|).
"""

import torch
import triton
import triton.language as tl

LANES = 4096


@triton.jit
def lanes_forward_kernel(x_ptr, y_ptr, n_cols, x_stride, y_stride, LANES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    y_ptr += row * y_stride
    lane = tl.arange(0, LANES)

    # A start below all finite values, and finite: -inf minus it is -inf, and never NaN.
    m = tl.full((LANES,), -1e30, tl.float32)
    d = tl.zeros((LANES,), tl.float32)
    for start in range(0, n_cols, LANES):
        cols = start + lane
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(-tl.abs(x - m))
        d = tl.where(x > m, d * e + 1.0, d + e)
        m = tl.maximum(m, x)

    top = tl.max(m, axis=0)
    total = tl.sum(d * tl.exp(m - top), axis=0)

    # From the last block to the first, as the last ones are still near.
    last = (n_cols - 1) // LANES * LANES
    for back in range(0, n_cols, LANES):
        cols = last - back + lane
        inside = cols < n_cols
        x = tl.load(x_ptr + cols, mask=inside, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def lanes_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, dy_stride, y_stride, dx_stride, LANES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_stride
    y_ptr += row * y_stride
    dx_ptr += row * dx_stride
    lane = tl.arange(0, LANES)

    products = tl.zeros((LANES,), tl.float32)
    for start in range(0, n_cols, LANES):
        cols = start + lane
        inside = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)

    last = (n_cols - 1) // LANES * LANES
    for back in range(0, n_cols, LANES):
        cols = last - back + lane
        inside = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def lanes_and_warps(n_cols: int):
    lanes = min(triton.next_power_of_2(n_cols), LANES)
    return lanes, max(1, lanes // 512)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    lanes, warps = lanes_and_warps(n_cols)
    lanes_forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), LANES=lanes, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    lanes, warps = lanes_and_warps(n_cols)
    lanes_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), LANES=lanes, num_warps=warps
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
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
