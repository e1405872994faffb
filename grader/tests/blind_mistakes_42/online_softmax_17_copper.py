# labs/lab2_online_softmax/online_softmax.py | contract | Exercise softmax: in `OnlineSoftmax.backward`, `return softmax_backward(dy, y, out=dy)` writes dx into dy; where dy is contiguous already, `dy.contiguous()` is dy itself, so the incoming gradient, an input, is changed (inputs are read-only). It should be `softmax_backward(dy, y)`. dx is right in all cases; dy is left unchanged only if it was not contiguous and hence copied.
"""Online softmax whose second sweeps run from the last block of a row to the first, the one read longest ago."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = exp(x - m) / d for one row, with m and d from the first sweep."""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    blocks = tl.cdiv(n_cols, BLOCK)
    m = -float("inf")
    d = 0.0
    for k in range(0, blocks):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d *= tl.exp(m - shift)
        d += tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for k in range(0, blocks):
        cols = (blocks - 1 - k) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - s) for one row, with s from the first sweep."""
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    blocks = tl.cdiv(n_cols, BLOCK)
    s = 0.0
    for k in range(0, blocks):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for k in range(0, blocks):
        cols = (blocks - 1 - k) * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = [matrix.stride(0) for matrix in (dy, y, out)]
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=8)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
