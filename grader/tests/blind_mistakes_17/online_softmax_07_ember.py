# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax with a fixed number of programs, which take one row after the other."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024
WIDEST = 8192
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def exp_of(difference):
    return tl.exp2(difference * LOG2_E)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        src = x_ptr + row * stride_x
        dst = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(src + start + lanes, mask=start + lanes < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * exp_of(m - shift) + tl.sum(exp_of(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            x = tl.load(src + start + lanes, mask=start + lanes < n_cols, other=-float("inf")).to(tl.float32)
            y = exp_of(x - m) / d
            tl.store(dst + start + lanes, y.to(y_ptr.dtype.element_ty), mask=start + lanes < n_cols)
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = start + lanes < n_cols
            dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        row += tl.num_programs(axis=0)


def launch_of(n_rows: int, n_cols: int):
    """Grid, width of a block and number of warps."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return (min(n_rows, PROGRAMS),), block, min(max(block // 512, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    y = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid, block, warps = launch_of(n_rows, n_cols)
    online_softmax_kernel[grid](x, y, n_rows, n_cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=warps)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dx = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    grid, block, warps = launch_of(n_rows, n_cols)
    softmax_backward_kernel[grid](
        dy, y, dx, n_rows, n_cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=block, num_warps=warps
    )
    return dx


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
    return OnlineSoftmax.apply(x)
