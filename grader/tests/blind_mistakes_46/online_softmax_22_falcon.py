# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: the first sweep runs from the last block of the row to the first, the second one forward; d is rescaled under a scalar `if top > m` only where the maximum rises; exp2 of (x - m) * log2(e).
"""Online softmax that folds a row from its end to its beginning; gradient and autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 16384
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def there_and_back_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i.

    The first sweep takes the blocks from right to left, the second from left to right: it begins with the blocks
    that were read last. d is brought to another scale only where a block raises the maximum.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    blocks = (n_cols - 1) // BLOCK + 1
    m = tl.full((), -float("inf"), dtype=tl.float32)
    d = tl.full((), 0.0, dtype=tl.float32)
    for k in range(0, blocks):
        cols = (blocks - 1 - k) * BLOCK + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        top = tl.max(x, axis=0)
        if top > m:
            d = d * tl.exp2((m - top) * LOG2E)
            m = top
        # As long as all columns were -inf, 0 is as good a shift as any.
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
    for k in range(0, blocks):
        cols = k * BLOCK + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - m) * LOG2E) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def there_and_back_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s = sum y[i, :] * dy[i, :], in the same two sweeps."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    blocks = (n_cols - 1) // BLOCK + 1
    s = tl.full((), 0.0, dtype=tl.float32)
    for k in range(0, blocks):
        cols = (blocks - 1 - k) * BLOCK + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(y.to(tl.float32) * dy.to(tl.float32), axis=0)
    for k in range(0, blocks):
        cols = k * BLOCK + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    there_and_back_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0),
        BLOCK=block, num_warps=8 if block == WIDEST else min(max(block // 1024, 1), 4),
    )  # fmt: skip
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    there_and_back_gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0),
        BLOCK=block, num_warps=min(max(block // 512, 4), 32),
    )  # fmt: skip
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
