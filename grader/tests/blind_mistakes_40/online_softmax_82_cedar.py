# labs/lab2_online_softmax/online_softmax.py | right | Unusual: backward takes a dy of any strides as it lies, with a column step (`step_dy`, 0 where expanded, int64 offsets), so that autograd's `backward` makes no contiguous copy; rows that fit one block are read once (`WHOLE`); results are always allocated contiguous with `torch.empty`.
"""Online softmax of rows, its gradient for a dy of any strides, and both for autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def load_row(ptr, cols, stride, n_cols, other):
    """One block of a row in fp32, `other` behind its end."""
    return tl.load(ptr + cols.to(tl.int64) * stride, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    """Row i by program i; with WHOLE the row is one block and is read once."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        x = load_row(x_ptr, lanes, 1, n_cols, -float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + lanes, y.to(y_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = load_row(x_ptr, start + lanes, 1, n_cols, -float("inf"))
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = load_row(x_ptr, cols, 1, n_cols, -float("inf"))
            y = tl.exp(x - m) / d
            tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    step_dy,  # elements from one column of dy to the next, 0 where it is expanded
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Row i by program i; dy is read where it lies."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if WHOLE:
        y = load_row(y_ptr, lanes, 1, n_cols, 0.0)
        dy = load_row(dy_ptr, lanes, step_dy, n_cols, 0.0)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_ptr + lanes, dx.to(dx_ptr.dtype.element_ty), mask=lanes < n_cols)
    else:
        parts = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            y = load_row(y_ptr, start + lanes, 1, n_cols, 0.0)
            parts += y * load_row(dy_ptr, start + lanes, step_dy, n_cols, 0.0)
        s = tl.sum(parts, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            y = load_row(y_ptr, cols, 1, n_cols, 0.0)
            dx = y * (load_row(dy_ptr, cols, step_dy, n_cols, 0.0) - s)
            tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def new_like(x: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix of the shape, dtype and device of x."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, columns contiguous; rows of x and `out` may lie apart."""
    out = new_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        WHOLE=n_cols <= block,
        num_warps=min(max(block // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from dy of any strides and y with contiguous columns."""
    out = new_like(y) if out is None else out
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        WHOLE=n_cols <= block,
        num_warps=min(max(block // 512, 4), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Both passes for autograd."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
