# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.backward: softmax_backward(y, dy) in place of softmax_backward(dy, y), so it gives dy * (y - s) | "softmax_backward(dy, y)", "dx_i = y_i * (g_i - s)"; every gradient of softmax(x); softmax_forward and softmax_backward themselves are right
"""Softmax in two sweeps over a row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
MAX_BLOCK = 8192


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def products_of_row(g_row, y_row, width, BLOCK: tl.constexpr):
    """The sum of g * y over one row, kept lane by lane until the end."""
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, width, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        g = tl.load(g_row + j, mask=j < width, other=0.0).to(tl.float32)
        y = tl.load(y_row + j, mask=j < width, other=0.0).to(tl.float32)
        lanes += g * y
    return tl.sum(lanes, axis=0)


@triton.jit
def softmax_grad_kernel(g_ptr, y_ptr, dx_ptr, width, step_g, step_y, step_dx, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    g_row = g_ptr + i * step_g
    y_row = y_ptr + i * step_y
    s = products_of_row(g_row, y_row, width, BLOCK)
    for begin in range(0, width, BLOCK):
        j = begin + tl.arange(0, BLOCK)
        g = tl.load(g_row + j, mask=j < width, other=0.0).to(tl.float32)
        y = tl.load(y_row + j, mask=j < width, other=0.0).to(tl.float32)
        tl.store(dx_ptr + i * step_dx + j, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=j < width)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy, y, *, out=None):
    rows, width = y.shape
    dx = torch.empty_like(dy) if out is None else out
    softmax_grad_kernel[(rows,)](
        dy, y, dx, width, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=min(triton.next_power_of_2(width), MAX_BLOCK)
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        probabilities = softmax_forward(x)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, grad):
        probabilities = ctx.saved_tensors[0]
        grad = grad.contiguous()
        return softmax_backward(probabilities, grad)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
