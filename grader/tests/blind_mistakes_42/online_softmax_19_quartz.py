# labs/lab2_online_softmax/online_softmax.py | error | In `online_softmax_kernel`, `stride_x.to(tl.int64)` and `stride_y.to(tl.int64)`: an integer argument that is 1 is a constexpr, which has no `.to`. It should be `row = tl.program_id(axis=0).to(tl.int64)` and `row * stride_x`. Does not compile where a row stride is 1, as in contiguous matrices of one column, (1, 1) among them; right in all other cases.
"""Online softmax that takes two blocks a turn, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

HALF = 4096  # a turn of the forward loop folds two blocks of at most this width
BACKWARD_BLOCK = 16384


@triton.jit
def read_scores(ptrs, cols, n_cols, policy: tl.constexpr):
    """Columns of a row in fp32; -inf past its end."""
    x = tl.load(ptrs + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy=policy)
    return x.to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i.

    Two blocks at a time: their loads are in flight together, and d is rescaled half as often.
    """
    row = tl.program_id(axis=0)
    x_row = x_ptr + row * stride_x.to(tl.int64)
    y_row = y_ptr + row * stride_y.to(tl.int64)
    left = tl.arange(0, BLOCK)
    right = BLOCK + left

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        a = read_scores(x_row, start + left, n_cols, "evict_last")
        b = read_scores(x_row, start + right, n_cols, "evict_last")
        m_new = tl.maximum(m, tl.max(tl.maximum(a, b), axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(a - shift) + tl.exp(b - shift), axis=0)
        m = m_new

    scale = 1.0 / d
    for start in range(0, n_cols, 2 * BLOCK):
        a = read_scores(x_row, start + left, n_cols, "evict_first")
        b = read_scores(x_row, start + right, n_cols, "evict_first")
        a = (tl.exp(a - m) * scale).to(y_ptr.dtype.element_ty)
        b = (tl.exp(b - m) * scale).to(y_ptr.dtype.element_ty)
        tl.store(y_row + start + left, a, mask=start + left < n_cols, eviction_policy="evict_first")
        tl.store(y_row + start + right, b, mask=start + right < n_cols, eviction_policy="evict_first")


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + start + lanes, mask=inside, other=0.0, eviction_policy="evict_last")
        products += dy.to(tl.float32) * y.to(tl.float32)
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + start + lanes, mask=inside, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(triton.cdiv(n_cols, 2)), HALF)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 4)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.shape
    if out is None:
        out = y.new_empty((n_rows, n_cols))
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
