# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) softmax_backward_kernel overwrites its sum in the first loop (`dot = tl.sum(g * p, axis=0)`), so dot is that of the last block alone; wrong for rows of more than one block (more than 1024 columns), it should be `dot += ...`. (2) OnlineSoftmax.forward saves x (`ctx.save_for_backward(x)`) and backward gives it to softmax_backward in the place of y; the gradient of softmax is wrong in every case, it should save y.
"""Online softmax: forward kernel, backward kernel, and the autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 1024
BACKWARD_BLOCK = 1024


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
    offs = tl.arange(0, BLOCK)
    NEG_INF: tl.constexpr = -float("inf")
    m = tl.full((1,), NEG_INF, dtype=tl.float32)
    d = tl.zeros((1,), dtype=tl.float32)
    x_ptrs = x_ptr + row * stride_x + offs
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs + start, mask=offs < n_cols - start, other=NEG_INF).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        m_use = tl.where(m_new == NEG_INF, 0.0, m_new)
        d = d * tl.exp(m - m_use) + tl.sum(tl.exp(x - m_use), axis=0)
        m = m_new
    y_ptrs = y_ptr + row * stride_y + offs
    for start in range(0, n_cols, BLOCK):
        mask = offs < n_cols - start
        x = tl.load(x_ptrs + start, mask=mask, other=NEG_INF).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    g_ptrs = dy_ptr + row * stride_dy + offs
    p_ptrs = y_ptr + row * stride_y + offs
    dx_ptrs = dx_ptr + row * stride_dx + offs
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = offs < n_cols - start
        g = tl.load(g_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(p_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        dot = tl.sum(g * p, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = offs < n_cols - start
        g = tl.load(g_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(p_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        dx = p * (g - dot)
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def block_for(n_cols: int, widest: int) -> int:
    return clamp(triton.next_power_of_2(n_cols), 1, widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of every row of x."""
    if out is None:
        out = torch.empty(x.size(), dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.size()
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block_for(n_cols, FORWARD_BLOCK),
        num_warps=2,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and y."""
    if out is None:
        out = torch.empty(dy.size(), dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.size()
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block_for(n_cols, BACKWARD_BLOCK),
        num_warps=4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with a gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), saved)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of every row of x."""
    return OnlineSoftmax.apply(x)
