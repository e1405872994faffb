# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward, launch: the kernel's parameters are (y_ptr, dy_ptr, dx_ptr, n_cols, stride_y, stride_dy, stride_dx), but the launch passes (dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0)), so y and dy are exchanged and the result is dy * (y - s). Wrong in every case of softmax_backward and of the gradient of softmax. It should pass y and y.stride(0) before dy and dy.stride(0).
"""Fused softmax for long rows, with a backward pass."""

import torch
import triton
import triton.language as tl

WIDEST_FORWARD = 16384
WIDEST_BACKWARD = 4096


@triton.jit
def fold(m, d, x):
    """The running maximum and sum after one more block of scores."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + cols
    y_ptrs = y_ptr + row * stride_y + cols
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs + start, mask=cols < n_cols - start, other=-float("inf"))
        m, d = fold(m, d, x.to(tl.float32))
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs + start, mask=cols < n_cols - start, other=-float("inf"))
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols - start)


@triton.jit
def softmax_backward_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    n_cols,
    stride_y,
    stride_dy,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    y_ptrs = y_ptr + row * stride_y + cols
    dy_ptrs = dy_ptr + row * stride_dy + cols
    dx_ptrs = dx_ptr + row * stride_dx + cols
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = cols < n_cols - start
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = cols < n_cols - start
        y = tl.load(y_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptrs + start, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs + start, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    assert x.ndim == 2, f"a matrix is needed, not {x.ndim} dimensions"
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST_FORWARD)
    warps = 8 if block >= 8192 else 4
    grid = (n_rows,)
    online_softmax_kernel[grid](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    assert dy.shape == y.shape, f"dy and y differ in shape: {dy.shape}, {y.shape}"
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST_BACKWARD)
    warps = 8 if block >= 4096 else 4
    grid = (n_rows,)
    softmax_backward_kernel[grid](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
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
    return OnlineSoftmax.apply(x)
