# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel: lanes past the end are filled with PAD = -65504, not -inf, so in a partial last block they count in m and d where the row lies near or below -65504 (fp16 near its lowest, fp32 and bf16 far below 0): too small values. (2) softmax_backward: stride_dx is dy.stride(0) in place of out.stride(0), so a result whose rows are padded otherwise than those of dy is stored at the wrong places, also out of bounds.
"""Softmax, one program for each row; block pointers move along the row."""

import torch
import triton
import triton.language as tl

PAD = tl.constexpr(-65504.0)  # value of the columns that do not exist


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = exp(x - m) / d."""
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    src = x_ptr + row * stride_x + lane
    for start in range(0, n_cols, BLOCK):
        x = tl.load(src, mask=lane < n_cols - start, other=PAD).to(tl.float32)
        m_next = tl.maximum(m, tl.max(x, axis=0))
        base = tl.where(m_next == -float("inf"), 0.0, m_next)
        d *= tl.exp(m - base)
        d += tl.sum(tl.exp(x - base), axis=0)
        m = m_next
        src += BLOCK

    src = x_ptr + row * stride_x + lane
    dst = y_ptr + row * stride_y + lane
    for start in range(0, n_cols, BLOCK):
        exists = lane < n_cols - start
        x = tl.load(src, mask=exists, other=PAD).to(tl.float32)
        tl.store(dst, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=exists)
        src += BLOCK
        dst += BLOCK


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s)."""
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, BLOCK)

    s = 0.0
    grads = dy_ptr + row * stride_dy + lane
    probs = y_ptr + row * stride_y + lane
    for start in range(0, n_cols, BLOCK):
        exists = lane < n_cols - start
        g = tl.load(grads, mask=exists, other=0.0).to(tl.float32)
        p = tl.load(probs, mask=exists, other=0.0).to(tl.float32)
        s += tl.sum(g * p, axis=0)
        grads += BLOCK
        probs += BLOCK

    grads = dy_ptr + row * stride_dy + lane
    probs = y_ptr + row * stride_y + lane
    dst = dx_ptr + row * stride_dx + lane
    for start in range(0, n_cols, BLOCK):
        exists = lane < n_cols - start
        g = tl.load(grads, mask=exists, other=0.0).to(tl.float32)
        p = tl.load(probs, mask=exists, other=0.0).to(tl.float32)
        tl.store(dst, (p * (g - s)).to(dx_ptr.dtype.element_ty), mask=exists)
        grads += BLOCK
        probs += BLOCK
        dst += BLOCK


def launch_options(n_cols: int, columns_per_warp: int) -> dict:
    """Width of a block, and warps for it."""
    block = min(triton.next_power_of_2(n_cols), 8192)
    return {"BLOCK": block, "num_warps": min(16, max(1, block // columns_per_warp))}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    options = launch_options(n_cols, 1024)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    options = launch_options(n_cols, 512)
    stride_dy, stride_y, stride_dx = dy.stride(0), y.stride(0), dy.stride(0)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, stride_dy, stride_y, stride_dx, **options)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Differentiable softmax."""

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
