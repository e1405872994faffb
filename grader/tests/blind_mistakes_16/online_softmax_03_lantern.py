# labs/lab2_online_softmax/online_softmax.py | error | OnlineSoftmax.forward takes two arguments after ctx (x and dim), but OnlineSoftmax.backward returns one gradient, so autograd raises "incorrect number of gradients" in every backward of softmax(). It should return the gradient and None.
"""Softmax with the online maximum and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        vals = tl.load(x_row_ptr + offs, mask=mask, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(vals, axis=0))
        safe = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp(vals - safe)
        d = d * tl.exp(m - safe)
        d += tl.sum(p, axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        vals = tl.load(x_row_ptr + offs, mask=mask, other=-float("inf")).to(tl.float32)
        tl.store(y_row_ptr + offs, (tl.exp(vals - m) / d).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        g = tl.load(dy_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(y_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        dot += tl.sum(g * p, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        g = tl.load(dy_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(y_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + offs, (p * (g - dot)).to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax along the last of two dimensions."""

    @staticmethod
    def forward(ctx, x, dim):
        assert dim == -1 or dim == x.dim() - 1, "only the last dimension"
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = softmax_backward(dy.contiguous(), y)
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x, -1)
