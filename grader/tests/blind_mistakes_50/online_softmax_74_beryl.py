# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `gradient_rows`, `centre = tl.sum(parts, axis=0) / n_cols` with `dx = product - centre` subtracts the mean of y * dy, which makes the row sum to 0 but is not the gradient; it should be `s = tl.sum(parts, axis=0)` and `dx = product - y * s`. Wrong in all cases of softmax_backward and of the gradient of softmax, except for one column.
"""Softmax over rows of any length with a running maximum, and its gradient."""

import torch
import triton
import triton.language as tl

WIDTH = 8192  # columns that a program takes at a time


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, x_stride, y_stride, WIDTH: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, WIDTH)
    x_lanes = x_ptr + row * x_stride + lanes
    y_lanes = y_ptr + row * y_stride + lanes

    # The lowest finite number of fp32: the difference of two maxima is never -inf - -inf.
    peak = -3.4028234663852886e38
    total = 0.0
    start = 0
    while start < n_cols:
        x = tl.load(x_lanes + start, mask=lanes < n_cols - start, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, axis=0))
        total = total * tl.exp(peak - higher) + tl.sum(tl.exp(x - higher), axis=0)
        peak = higher
        start += WIDTH

    scale = 1.0 / total
    start = 0
    while start < n_cols:
        exists = lanes < n_cols - start
        x = tl.load(x_lanes + start, mask=exists, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - peak) * scale
        tl.store(y_lanes + start, y.to(y_ptr.dtype.element_ty), mask=exists)
        start += WIDTH


@triton.jit
def products(dy_lanes, y_lanes, exists):
    """dy, y and their product of one block in fp32; 0 where the row has no column."""
    dy = tl.load(dy_lanes, mask=exists, other=0.0).to(tl.float32)
    y = tl.load(y_lanes, mask=exists, other=0.0).to(tl.float32)
    return dy, y, dy * y


@triton.jit
def gradient_rows(dy_ptr, y_ptr, dx_ptr, n_cols, dy_stride, y_stride, dx_stride, WIDTH: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, WIDTH)
    dy_lanes = dy_ptr + row * dy_stride + lanes
    y_lanes = y_ptr + row * y_stride + lanes
    dx_lanes = dx_ptr + row * dx_stride + lanes

    # Lane by lane first: one reduction for the whole row.
    parts = tl.zeros((WIDTH,), dtype=tl.float32)
    for start in range(0, n_cols, WIDTH):
        dy, y, product = products(dy_lanes + start, y_lanes + start, lanes < n_cols - start)
        parts += product
    centre = tl.sum(parts, axis=0) / n_cols

    for start in range(0, n_cols, WIDTH):
        exists = lanes < n_cols - start
        dy, y, product = products(dy_lanes + start, y_lanes + start, exists)
        dx = product - centre
        tl.store(dx_lanes + start, dx.to(dx_ptr.dtype.element_ty), mask=exists)


def width_of(n_cols: int) -> int:
    """The next power of two, but at most WIDTH."""
    return min(triton.next_power_of_2(n_cols), WIDTH)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x, (n_rows, n_cols), to `out` or to a new matrix."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = width_of(n_cols)
    warps = min(max(width // 1024, 4), 8)
    softmax_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), WIDTH=width, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy and y, to `out` or to a new matrix."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width = width_of(n_cols)
    warps = min(max(width // 512, 4), 16)
    gradient_rows[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), WIDTH=width, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Both kernels as one function of autograd."""

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
