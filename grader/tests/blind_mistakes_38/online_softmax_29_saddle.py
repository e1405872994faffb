# labs/lab2_online_softmax/online_softmax.py | two mistakes | softmax_backward. (1) Each of min(n_rows, PROGRAMS) programs takes `n_rows // programs` rows, rounded down: with more than 132 rows, and not a multiple of 132, the last n_rows % 132 rows of dx are not written. It should be triton.cdiv(n_rows, programs), with a check in the kernel that the row exists. (2) The launch passes `out.stride(0), y.stride(0)` where the kernel has stride_y, stride_dx: y is read with the row stride of out and dx is stored with that of y. Shows where y and out have different row strides (padded rows, more than one row), with wrong rows and accesses outside or between the rows; it should be y.stride(0), out.stride(0). Forward is right.
"""Online softmax: a program for each row forward, a program for several rows backward."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132  # of the backward pass: one for each multiprocessor of an H200


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + offs, mask=start + offs < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        if m_new > -float("inf"):
            d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_row + start + offs, mask=start + offs < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row + start + offs, y.to(y_ptr.dtype.element_ty), mask=start + offs < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    rows_each,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    first = tl.program_id(axis=0).to(tl.int64) * rows_each
    offs = tl.arange(0, BLOCK)
    for r in range(0, rows_each):
        row = first + r
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            here = start + offs < n_cols
            dy = tl.load(dy_row + start + offs, mask=here, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + offs, mask=here, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in range(0, n_cols, BLOCK):
            here = start + offs < n_cols
            dy = tl.load(dy_row + start + offs, mask=here, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + offs, mask=here, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + start + offs, dx.to(dx_ptr.dtype.element_ty), mask=here)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=max(1, block // 1024)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    programs = min(n_rows, PROGRAMS)
    softmax_backward_kernel[(programs,)](
        dy,
        y,
        out,
        n_cols,
        n_rows // programs,
        dy.stride(0),
        out.stride(0),
        y.stride(0),
        BLOCK=block,
        num_warps=max(1, block // 512),
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
    return OnlineSoftmax.apply(x)
