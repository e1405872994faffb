# labs/lab2_online_softmax/online_softmax.py | contract | OnlineSoftmax.backward passes out=dy: where the incoming gradient is contiguous already, dy.contiguous() is that very tensor, so the caller's gradient is overwritten with dx although inputs are read-only (another branch that shares the gradient would read dx, too). It should let softmax_backward allocate a new tensor.
"""Softmax: a row that fits into one block is read once; longer rows take the online recurrence."""

import torch
import triton
import triton.language as tl

ONE_BLOCK = 8192  # up to here, a row stays in registers


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["BLOCK"]})
@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    if WHOLE:
        x = tl.load(x_row + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_row + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] <= args["BLOCK"]})
@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    offs = tl.arange(0, BLOCK)
    if WHOLE:
        dy = tl.load(dy_row + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_row + offs, dx.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + offs
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def width(n_cols: int) -> int:
    return min(max(triton.next_power_of_2(n_cols), 128), ONE_BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of the rows of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = width(n_cols)
    warps = 8 if block >= 4096 else 4
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """dx from dy and y."""
    if out is None:
        out = torch.empty_like(y, memory_format=torch.contiguous_format)
    n_rows, n_cols = y.shape
    block = width(n_cols)
    warps = 16 if block >= 4096 else 4
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
        # Each block of dy is read for the last time just before dx of this block is stored: one buffer is enough.
        dy = dy.contiguous()
        return softmax_backward(dy, y, out=dy)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
