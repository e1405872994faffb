# labs/lab2_online_softmax/online_softmax.py | contract | OnlineSoftmax.backward: `softmax_backward(grad, y, out=grad)` writes dx over grad, and where dy is contiguous already `dy.contiguous()` is dy itself, so the incoming gradient is overwritten, although inputs are read-only (labs/README.md, Rules). dx is right in every case. Shows where a contiguous dy comes in (y.backward(g): g holds dx afterwards); an expanded, transposed, padded or spread dy is copied and stays. It should be `softmax_backward(dy.contiguous(), y)` with a new tensor for the result.
"""Softmax over rows of any length, its gradient, and both for autograd."""

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
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        x = tl.load(x_row_ptr + start + offs, mask, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        x = tl.load(x_row_ptr + start + offs, mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row_ptr + start + offs, y.to(y_ptr.dtype.element_ty), mask)


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
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    offs = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        dy = tl.load(dy_row_ptr + start + offs, mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + offs, mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        mask = start + offs < n_cols
        dy = tl.load(dy_row_ptr + start + offs, mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + start + offs, mask, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + start + offs, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def launch_options(n_cols: int, widest: int, columns_per_warp: int) -> dict:
    """Block width and warps for rows of n_cols."""
    block = clamp(triton.next_power_of_2(n_cols), 1, widest)
    return {"BLOCK": block, "num_warps": clamp(block // columns_per_warp, 1, 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    options = launch_options(n_cols, FORWARD_BLOCK, 2048)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    options = launch_options(n_cols, BACKWARD_BLOCK, 512)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options
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
        grad = dy.contiguous()
        return softmax_backward(grad, y, out=grad)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
