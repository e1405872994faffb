# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax with a fixed number of programs; each lane keeps its own maximum and sum."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
PROGRAMS = 132 * 8
LOWEST = tl.constexpr(-3.4028234663852886e38)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp_(a):
    return tl.exp2(a * LOG2E)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        src = x_ptr + row * stride_x
        dst = y_ptr + row * stride_y
        tops = tl.full((BLOCK,), LOWEST, dtype=tl.float32)
        sums = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(tops, x)
            sums = sums * exp_(tops - higher) + exp_(x - higher)
            tops = higher
        m = tl.max(tops, axis=0)
        d = tl.sum(sums * exp_(tops - m), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(dst + cols, (exp_(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    lane = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            acc += dy * y
        s = tl.sum(acc, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += tl.num_programs(axis=0)


def block_for(n_cols: int) -> int:
    return min(triton.next_power_of_2(n_cols), BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to out where it is given."""
    y = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x, y, n_rows, n_cols, x.stride(0), y.stride(0), BLOCK=block_for(n_cols), num_warps=4
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input, from dy and the forward result y."""
    dx = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        dx,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block_for(n_cols),
        num_warps=8,
    )
    return dx


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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
