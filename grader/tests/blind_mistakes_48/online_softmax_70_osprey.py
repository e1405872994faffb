# labs/lab2_online_softmax/online_softmax.py | contract | In `new_matrix`, called by `softmax_forward` without `out`: `torch.empty_strided((n_rows, n_cols), (stride, 1), ...)` with `stride` rounded up to 16 bytes must be a contiguous matrix (stride n_cols). The README asks for a new contiguous matrix; numbers are right. Shows without `out` where n_cols is no multiple of 4 (fp32) or 8 (fp16, bf16) and there is more than one row.
"""Softmax whose second sweep runs backwards, over what the cache saw last, its gradient, and both together."""

import torch
import triton
import triton.language as tl

WIDTH = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def there_and_back_kernel(x_ptr, y_ptr, n_cols, blocks, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i: maximum and sum from the first block to the last, the result from the last to the first."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for i in range(0, blocks):
        cols = lanes + i * BLOCK
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(tl.max(x, axis=0), m)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new
    for i in range(0, blocks):
        cols = lanes + (blocks - 1 - i) * BLOCK
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - m) * LOG2E) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, blocks, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - s) of row i, where s is the sum of y * dy over the row; there and back likewise."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for i in range(0, blocks):
        cols = lanes + i * BLOCK
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for i in range(0, blocks):
        cols = lanes + (blocks - 1 - i) * BLOCK
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_row + cols, dx, mask=inside, eviction_policy="evict_first")


def new_matrix(like: torch.Tensor) -> torch.Tensor:
    """An empty matrix of the shape and dtype of `like`. Each row starts at a multiple of 16 bytes."""
    n_rows, n_cols = like.shape
    vector = 16 // like.element_size()
    stride = triton.cdiv(n_cols, vector) * vector
    return torch.empty_strided((n_rows, n_cols), (stride, 1), dtype=like.dtype, device=like.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = new_matrix(x)
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    there_and_back_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        triton.cdiv(n_cols, block),
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=4 if block >= 4096 else 2 if block >= 1024 else 1,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        triton.cdiv(n_cols, block),
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=16 if block >= 8192 else 8 if block >= 2048 else 4,
    )
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
