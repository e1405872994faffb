# labs/lab2_online_softmax/online_softmax.py | contract | `OnlineSoftmax.backward` (softmax): `dy = dy.contiguous()` then `softmax_backward(dy, y, out=dy)`. `contiguous()` returns dy itself where it is contiguous already, so the incoming gradient of the caller is overwritten with dx, and dx is the same memory: inputs are read-only. The numbers of dx are right; dy in other layouts is copied and unchanged. It should be without `out=dy`.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

A row that fits into one block is read once and stays in registers; longer ones are read twice.
"""

import torch
import triton
import triton.language as tl

WIDEST = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def row_softmax(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    """Softmax of row i of x in program i. WHOLE says that a row is one block."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    if WHOLE:
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp2((x - tl.max(x, axis=0)) * LOG2E)
        y = e / tl.sum(e, axis=0)
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + cols < n_cols
            x = tl.load(x_row + start + cols, mask=inside, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            inside = start + cols < n_cols
            x = tl.load(x_row + start + cols, mask=inside, other=-float("inf")).to(tl.float32)
            y = tl.exp2((x - m) * LOG2E) / d
            tl.store(y_row + start + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def row_gradient(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """dx = y * (dy - s), s = sum y * dy, of row i in program i. WHOLE says that a row is one block."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    cols = tl.arange(0, BLOCK)
    if WHOLE:
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            inside = start + cols < n_cols
            dy = tl.load(dy_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            inside = start + cols < n_cols
            dy = tl.load(dy_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def plan(n_cols: int, columns_per_warp: int, most_warps: int):
    """Options of a launch for rows of n_cols columns."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    warps = min(max(block // columns_per_warp, 1), most_warps)
    return {"BLOCK": block, "WHOLE": n_cols <= block, "num_warps": warps}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) with contiguous columns; into `out` if given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    row_softmax[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **plan(n_cols, 1024, 8))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax from dy and the result y, likewise; into `out` if given."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    row_gradient[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **plan(n_cols, 512, 16)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; y is kept for the gradient."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        dy = dy.contiguous()
        return softmax_backward(dy, y, out=dy)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols)."""
    return OnlineSoftmax.apply(x)
