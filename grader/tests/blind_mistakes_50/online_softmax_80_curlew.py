# labs/lab2_online_softmax/online_softmax.py | contract | In `softmax_forward`, `out = x.new_empty_strided(x.shape, x.stride())` gives the result the row stride of x where no `out` is passed; it should be a new contiguous matrix (`torch.empty_like(x)` or `x.new_empty(x.shape)`). The numbers are right; shows where x is padded, has more than one row, and `out` is not given.
"""Online softmax that folds two blocks at a time, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

HALF = 8192  # widest block; a turn of the loop has two of them
BACKWARD_BLOCK = 16384


@triton.jit
def load_pair(row_ptr, cols, n_cols, BLOCK: tl.constexpr, policy: tl.constexpr):
    """Two neighbouring blocks of a row in fp32, -inf behind its end."""
    a = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy=policy)
    cols += BLOCK
    b = tl.load(row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy=policy)
    return a.to(tl.float32), b.to(tl.float32)


@triton.jit
def store_cast(row_ptr, cols, n_cols, value):
    """One block of a row, rounded to its dtype."""
    tl.store(
        row_ptr + cols,
        value.to(row_ptr.dtype.element_ty),
        mask=cols < n_cols,
        eviction_policy="evict_first",
    )


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i by program i, 2 * BLOCK columns in each turn of both loops."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        a, b = load_pair(x_row_ptr, start + lanes, n_cols, BLOCK, "evict_last")
        m_new = tl.maximum(m, tl.max(tl.maximum(a, b), axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(a - shift) + tl.exp(b - shift), axis=0)
        m = m_new

    for start in range(0, n_cols, 2 * BLOCK):
        cols = start + lanes
        a, b = load_pair(x_row_ptr, cols, n_cols, BLOCK, "evict_first")
        store_cast(y_row_ptr, cols, n_cols, tl.exp(a - m) / d)
        store_cast(y_row_ptr, cols + BLOCK, n_cols, tl.exp(b - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx of row i by program i, one block in each turn: dx = y * (dy - sum of y * dy)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        store_cast(dx_row_ptr, cols, n_cols, y.to(tl.float32) * (dy.to(tl.float32) - s))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty_strided(x.shape, x.stride())
    block = min(triton.next_power_of_2(triton.cdiv(n_cols, 2)), HALF)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block == HALF else clamp(block // 512, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty(dy.shape)
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
        num_warps=clamp(block // 512, 4, 32),
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
