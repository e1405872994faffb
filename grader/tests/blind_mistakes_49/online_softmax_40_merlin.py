# labs/lab2_online_softmax/online_softmax.py | contract | In `like`, `torch.empty_strided(t.size(), t.stride(), ...)` gives the new result the row stride of x; the README asks for a new contiguous matrix, `torch.empty(t.size(), dtype=t.dtype, device=t.device)`. Shows where no out is given and the rows of x are padded, in softmax_forward and in softmax; all numbers are right.
"""Softmax whose second sweep goes backwards, from the block that was read last to the first."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def sweep_back_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr = x_ptr + row * stride_x
    y_ptr = y_ptr + row * stride_y
    n_blocks = tl.cdiv(n_cols, BLOCK)
    m = -float("inf")
    d = 0.0
    for i in range(0, n_blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for i in range(0, n_blocks):
        cols = (n_blocks - 1 - i) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(
            y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first"
        )


@triton.jit
def gradient_back_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s = sum y[i, :] * dy[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr = dy_ptr + row * stride_dy
    y_ptr = y_ptr + row * stride_y
    dx_ptr = dx_ptr + row * stride_dx
    n_blocks = tl.cdiv(n_cols, BLOCK)
    s = 0.0
    for i in range(0, n_blocks):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for i in range(0, n_blocks):
        cols = (n_blocks - 1 - i) * BLOCK + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def like(t: torch.Tensor) -> torch.Tensor:
    """A new matrix for the result."""
    return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else min(max(block // 1024, 1), 4)
    sweep_back_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.size(), dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 32)
    gradient_back_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
