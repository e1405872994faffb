# labs/lab2_online_softmax/online_softmax.py | error | In `softmax_backward`, `num_warps=clamp(triton.cdiv(n_cols, 512), 4, 32)` is no power of two for most rows of 2049 to 15872 columns (6 for 2600 and 3001 columns), and Triton refuses the launch; it should follow the block, `clamp(BLOCK // 512, 4, 32)`. All other widths (up to 2048, 3585 to 4096, 7681 to 8192, above 15872) are right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384  # the widest blocks whose values stay in registers
BACKWARD_BLOCK = 16384


@triton.jit
def next_state(m, d, x):
    """Maximum and sum of a row after the block x; x may hold -inf alone."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i; blocks move along the row with their pointers."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lanes
    m = -float("inf")
    d = 0.0
    for done in range(0, n_cols, BLOCK):
        x = tl.load(x_ptrs, mask=lanes < n_cols - done, other=-float("inf"), eviction_policy="evict_last")
        m, d = next_state(m, d, x.to(tl.float32))
        x_ptrs += BLOCK

    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    for done in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - done
        x = tl.load(x_ptrs, mask=mask, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
        x_ptrs += BLOCK
        y_ptrs += BLOCK


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
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s = sum of y[i, :] * dy[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    s = 0.0
    for done in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - done
        dy = tl.load(dy_ptrs, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptrs, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
        dy_ptrs += BLOCK
        y_ptrs += BLOCK

    dy_ptrs = dy_ptr + row * stride_dy + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    dx_ptrs = dx_ptr + row * stride_dx + lanes
    for done in range(0, n_cols, BLOCK):
        mask = lanes < n_cols - done
        dy = tl.load(dy_ptrs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptrs, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptrs, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
        dy_ptrs += BLOCK
        y_ptrs += BLOCK
        dx_ptrs += BLOCK


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK),
        num_warps=clamp(triton.cdiv(n_cols, 512), 4, 32),  # one for each 512 columns
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
