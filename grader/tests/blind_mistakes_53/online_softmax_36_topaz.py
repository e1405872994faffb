# labs/lab2_online_softmax/online_softmax.py | error | In gradient_rows `s = 0` is an int32 that the loop turns into fp32 with `s += tl.sum(dy * y, axis=0)`: a loop-carried variable may not change its type, so the kernel does not compile (in all cases; the interpreter alone accepts it). It should be `s = 0.0`.
"""Online softmax and its gradient: whole blocks are read without a mask, and the rest of a row with one."""

import torch
import triton
import triton.language as tl

WIDTH = 4096

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def update(m, d, x):
    """Maximum and sum with one more block of columns."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
    return m_new, d_new


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    src = x_ptr + row * stride_x
    dst = y_ptr + row * stride_y
    lane = tl.arange(0, WIDTH)
    whole = n_cols // WIDTH * WIDTH  # columns in whole blocks
    m = -float("inf")
    d = 0.0
    for start in range(0, whole, WIDTH):
        m, d = update(m, d, tl.load(src + start + lane).to(tl.float32))
    if whole < n_cols:
        x = tl.load(src + whole + lane, mask=whole + lane < n_cols, other=-float("inf")).to(tl.float32)
        m, d = update(m, d, x)
    for start in range(0, whole, WIDTH):
        x = tl.load(src + start + lane).to(tl.float32)
        tl.store(dst + start + lane, (tl.exp2((x - m) * LOG2E) / d).to(dst.dtype.element_ty))
    if whole < n_cols:
        rest = whole + lane < n_cols
        x = tl.load(src + whole + lane, mask=rest, other=-float("inf")).to(tl.float32)
        tl.store(dst + whole + lane, (tl.exp2((x - m) * LOG2E) / d).to(dst.dtype.element_ty), mask=rest)


@triton.jit
def gradient_rows(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, WIDTH)
    whole = n_cols // WIDTH * WIDTH
    rest = whole + lane < n_cols

    # The rest of the row is read once, and stays in registers.
    dy_rest = tl.load(dy_row + whole + lane, mask=rest, other=0.0).to(tl.float32)
    y_rest = tl.load(y_row + whole + lane, mask=rest, other=0.0).to(tl.float32)

    s = 0
    for start in range(0, whole, WIDTH):
        dy = tl.load(dy_row + start + lane).to(tl.float32)
        y = tl.load(y_row + start + lane).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    s += tl.sum(dy_rest * y_rest, axis=0)

    for start in range(0, whole, WIDTH):
        dy = tl.load(dy_row + start + lane).to(tl.float32)
        y = tl.load(y_row + start + lane).to(tl.float32)
        tl.store(dx_row + start + lane, (y * (dy - s)).to(dx_row.dtype.element_ty))
    tl.store(dx_row + whole + lane, (y_rest * (dy_rest - s)).to(dx_row.dtype.element_ty), mask=rest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x; returns `out`, or a new tensor."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    softmax_rows[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), WIDTH=width, num_warps=max(width // 1024, 1)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of the softmax; returns `out`, or a new tensor."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    gradient_rows[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        WIDTH=width,
        num_warps=max(width // 256, 1),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward and its gradient."""

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
