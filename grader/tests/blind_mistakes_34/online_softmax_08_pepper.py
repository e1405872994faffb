# labs/lab2_online_softmax/online_softmax.py | corner | online_softmax_kernel: -60000.0 stands in for -inf, as the start of the maximum m and as `other` of both loads, but finite values may lie far below it (to -1e28 in fp32 and bf16, to -65504 in fp16). Where all of a row lies below about -60000, m stays -60000 instead of the row's maximum: every exp of the row is 0, the masked lanes count 1 each in d, and the row comes out as zeros (NaN if there is no masked lane); just above -60000 the masked lanes are counted in d. All other rows are right, also with -inf in them. Should be -float("inf"), with a finite shift while m is -inf.
"""Softmax over rows of any length, one program for each row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row_id = tl.program_id(axis=0).to(tl.int64)
    in_ptr = x_ptr + row_id * stride_x
    out_ptr = y_ptr + row_id * stride_y

    m = -60000.0
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        vals = tl.load(in_ptr + idx, mask=idx < n_cols, other=-60000.0).to(tl.float32)
        m_next = tl.maximum(m, tl.max(vals, axis=0))
        d *= tl.exp(m - m_next)
        d += tl.sum(tl.exp(vals - m_next), axis=0)
        m = m_next

    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        vals = tl.load(in_ptr + idx, mask=idx < n_cols, other=-60000.0).to(tl.float32)
        probs = tl.exp(vals - m) / d
        tl.store(out_ptr + idx, probs.to(y_ptr.dtype.element_ty), mask=idx < n_cols)


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
    """dx[i, :] = y[i, :] * (dy[i, :] - dot)."""
    row_id = tl.program_id(axis=0).to(tl.int64)
    g_ptr = dy_ptr + row_id * stride_dy
    p_ptr = y_ptr + row_id * stride_y
    out_ptr = dx_ptr + row_id * stride_dx

    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        g = tl.load(g_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        p = tl.load(p_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        dot += tl.sum(g * p, axis=0)

    for start in range(0, n_cols, BLOCK):
        idx = start + tl.arange(0, BLOCK)
        g = tl.load(g_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        p = tl.load(p_ptr + idx, mask=idx < n_cols, other=0.0).to(tl.float32)
        tl.store(out_ptr + idx, (p * (g - dot)).to(dx_ptr.dtype.element_ty), mask=idx < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        probs = softmax_forward(x)
        ctx.save_for_backward(probs)
        return probs

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (probs,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), probs)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
