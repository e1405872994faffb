# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax with a maximum and a sum for every lane; lanes are joined in two steps behind the loop."""

import torch
import triton
import triton.language as tl

LOWEST = tl.constexpr(-3.4028234663852886e38)  # finite, so that -inf minus it is -inf and not NaN
WIDE = tl.constexpr(32)  # lanes side by side


@triton.jit
def tile_cols(start, DEEP: tl.constexpr):
    """Columns of a tile of DEEP x WIDE lanes, from `start` on."""
    return start + tl.arange(0, DEEP)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, DEEP: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y

    tops = tl.full((DEEP, WIDE), LOWEST, tl.float32)
    sums = tl.zeros((DEEP, WIDE), dtype=tl.float32)
    for start in range(0, n_cols, DEEP * WIDE):
        cols = tile_cols(start, DEEP)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        # one exp a lane: either the sum shrinks or the new term does
        small = tl.exp(-tl.abs(x - tops))
        sums = tl.where(x > tops, sums * small + 1.0, sums + small)
        tops = tl.maximum(tops, x)

    # 32 lanes of a line, then the lines
    line_top = tl.max(tops, axis=1)
    line_sum = tl.sum(sums * tl.exp(tops - line_top[:, None]), axis=1)
    m = tl.max(line_top, axis=0)
    d = tl.sum(line_sum * tl.exp(line_top - m), axis=0)

    for start in range(0, n_cols, DEEP * WIDE):
        cols = tile_cols(start, DEEP)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, DEEP: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    parts = tl.zeros((DEEP, WIDE), dtype=tl.float32)
    for start in range(0, n_cols, DEEP * WIDE):
        cols = tile_cols(start, DEEP)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        parts += dy * y
    s = tl.sum(tl.sum(parts, axis=1), axis=0)
    for start in range(0, n_cols, DEEP * WIDE):
        cols = tile_cols(start, DEEP)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def lines(n_cols, most):
    """Lines of 32 lanes: a power of two, at most `most`."""
    return min(triton.next_power_of_2(triton.cdiv(n_cols, 32)), most)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), DEEP=lines(n_cols, 128), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y."""
    if out is None:
        out = torch.empty(dy.shape, device=dy.device, dtype=dy.dtype)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), DEEP=lines(n_cols, 256), num_warps=8
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
