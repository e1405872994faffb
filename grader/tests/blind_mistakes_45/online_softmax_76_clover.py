# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) `softmax_backward`, kernel `backward_long_kernel`, second loop: `cols = (blocks - i) * BLOCK + ...` should be `(blocks - 1 - i) * BLOCK`; the first 4096 columns of dx are never stored; shows in rows longer than 4096. (2) `softmax_backward`, `steps = (y.stride(0), dy.stride(0), out.stride(0))`: the first two are exchanged, the kernels take the stride of dy first; shows where dy and y have different row strides (reads of wrong elements, also past the end), also in short rows.
"""Softmax and its gradient; of a long row the second sweep begins where the first one ended."""

import torch
import triton
import triton.language as tl

WIDEST_FORWARD = 8192
WIDEST_BACKWARD = 4096


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, x_step, y_step, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = x_ptr + row * x_step, y_ptr + row * y_step
    m = -float("inf")
    d = 0.0
    blocks = tl.cdiv(n_cols, BLOCK)
    for i in range(blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for i in range(blocks):
        cols = (blocks - 1 - i) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_short_kernel(g_ptr, y_ptr, dx_ptr, n_cols, g_step, y_step, dx_step, BLOCK: tl.constexpr):
    """A row that fits one block is loaded once."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    g = tl.load(g_ptr + row * g_step + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_step + cols, mask=inside, other=0.0).to(tl.float32)
    dx = y * (g - tl.sum(g * y, axis=0))
    tl.store(dx_ptr + row * dx_step + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_long_kernel(g_ptr, y_ptr, dx_ptr, n_cols, g_step, y_step, dx_step, BLOCK: tl.constexpr):
    """A longer row is swept from left to right for the sum, and from right to left for dx."""
    row = tl.program_id(0).to(tl.int64)
    g_row, y_row, dx_row = g_ptr + row * g_step, y_ptr + row * y_step, dx_ptr + row * dx_step
    blocks = tl.cdiv(n_cols, BLOCK)
    s = 0.0
    for i in range(blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        g = tl.load(g_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(g * y, axis=0)
    for i in range(blocks):
        cols = (blocks - i) * BLOCK + tl.arange(0, BLOCK)
        inside = cols < n_cols
        g = tl.load(g_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST_FORWARD)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=min(max(block // 1024, 1), 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST_BACKWARD)
    warps = min(max(block // 512, 1), 8)
    steps = (y.stride(0), dy.stride(0), out.stride(0))
    if n_cols <= block:
        backward_short_kernel[(n_rows,)](dy, y, out, n_cols, *steps, BLOCK=block, num_warps=warps)
    else:
        backward_long_kernel[(n_rows,)](dy, y, out, n_cols, *steps, BLOCK=block, num_warps=warps)
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
