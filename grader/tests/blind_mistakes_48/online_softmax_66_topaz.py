# labs/lab2_online_softmax/online_softmax.py | error | In `softmax_backward`, `warps = clamp(triton.cdiv(n_cols, 512), 4, 16)` need not be a power of two, which Triton refuses on launch; it should be computed from `block`, as `clamp(block // 512, 4, 16)`. Raises for rows of such lengths, as 2600 or 3001 columns (6 warps), on a GPU or when compiled; other lengths (up to 2048, 3585 to 4096, from 7681 on) are right.
"""Softmax over rows of any length, its gradient, and an autograd function of the two."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def fold(m, d, x):
    """Maximum and sum of a row after one more block x of it."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] for row i = number of the program."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x_block = x_ptr + row * stride_x + cols
    y_block = y_ptr + row * stride_y + cols
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(
            x_block + start, mask=start + cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        )
        m, d = fold(m, d, x.to(tl.float32))
    for start in range(0, n_cols, BLOCK):
        inside = start + cols < n_cols
        x = tl.load(x_block + start, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_block + start, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]) for row i = number of the program."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    dy_block = dy_ptr + row * stride_dy + cols
    y_block = y_ptr + row * stride_y + cols
    dx_block = dx_ptr + row * stride_dx + cols
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + cols < n_cols
        dy = tl.load(dy_block + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_block + start, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = start + cols < n_cols
        dy = tl.load(dy_block + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_block + start, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_block + start, dx, mask=inside, eviction_policy="evict_first")


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    # One warp for each 1024 lanes of a block.
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    # One warp for each 512 columns.
    warps = clamp(triton.cdiv(n_cols, 512), 4, 16)
    softmax_backward_kernel[(n_rows,)](
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
