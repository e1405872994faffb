# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel, second loop, tl.exp2(x - m): the factor log2(e) is missing, while d is a sum of powers with base e, so rows do not sum to 1. It should be tl.exp2((x - m) * log2e).
"""Online softmax with exp2, which the hardware has as an instruction."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    log2e = 1.4426950408889634

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        ok = lanes < n_cols - start
        x = tl.load(x_row + start + lanes, mask=ok, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - shift) * log2e)
        d = d + tl.sum(tl.exp2((x - shift) * log2e), axis=0)
        m = m_new

    for start in range(0, n_cols, BLOCK):
        ok = lanes < n_cols - start
        x = tl.load(x_row + start + lanes, mask=ok, other=-float("inf")).to(tl.float32)
        y = tl.exp2(x - m) / d
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty), mask=ok)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        ok = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=ok, other=0.0).to(tl.float32)
        s = s + tl.sum(y * dy, axis=0)

    for start in range(0, n_cols, BLOCK):
        ok = lanes < n_cols - start
        dy = tl.load(dy_row + start + lanes, mask=ok, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=ok, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=ok)


def width(n_cols: int, widest: int) -> int:
    return min(triton.next_power_of_2(n_cols), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = width(n_cols, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 8192 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = width(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=32 if block > 8192 else 8,
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
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
