# labs/lab2_online_softmax/online_softmax.py | contract | `result_for`, called in `softmax_forward` where no `out` is given, returns `t.new_empty_strided(t.shape, t.stride())`: a matrix with the row stride of x. The README asks for a new contiguous matrix (`torch.empty(t.shape, dtype=t.dtype, device=t.device)`). The numbers are right; it shows without `out` (also in `softmax`) where rows of x are padded.
"""Softmax over rows of any length: one sweep upwards for maximum and sum, and one back for the result."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def row_start(ptr, row, stride):
    """The first element of a row, whose offset may be beyond 2^31."""
    return ptr + row.to(tl.int64) * stride


@triton.jit
def there_and_back_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program i owns row i. The way back begins with the block that was read last, which is still in a cache."""
    row = tl.program_id(axis=0)
    x_row_ptr = row_start(x_ptr, row, stride_x)
    y_row_ptr = row_start(y_ptr, row, stride_y)
    lanes = tl.arange(0, BLOCK)
    n_blocks = (n_cols + BLOCK - 1) // BLOCK

    m = -float("inf")
    d = 0.0
    for block in range(0, n_blocks):
        cols = block * BLOCK + lanes
        x = tl.load(
            x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new

    for block in range(0, n_blocks):
        cols = (n_blocks - 1 - block) * BLOCK + lanes
        inside = cols < n_cols
        x = tl.load(
            x_row_ptr + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
        )


@triton.jit
def there_and_back_gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - s), s the sum of y * dy over the row."""
    row = tl.program_id(axis=0)
    dy_row_ptr = row_start(dy_ptr, row, stride_dy)
    y_row_ptr = row_start(y_ptr, row, stride_y)
    dx_row_ptr = row_start(dx_ptr, row, stride_dx)
    lanes = tl.arange(0, BLOCK)
    n_blocks = (n_cols + BLOCK - 1) // BLOCK

    s = 0.0
    for block in range(0, n_blocks):
        cols = block * BLOCK + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for block in range(0, n_blocks):
        cols = (n_blocks - 1 - block) * BLOCK + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(
            dx_row_ptr + cols,
            (y * (dy - s)).to(dx_ptr.dtype.element_ty),
            mask=inside,
            eviction_policy="evict_first",
        )


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def result_for(t: torch.Tensor) -> torch.Tensor:
    """A new matrix for a result that belongs to t."""
    return t.new_empty_strided(t.shape, t.stride())


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = result_for(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    there_and_back_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 16),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    there_and_back_gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 32),
    )
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
