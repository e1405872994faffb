# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | The helper `fold` returns `total, top` (sum, maximum), but online_softmax_kernel unpacks `m, d = fold(m, d, x)` (maximum, sum): m and d change places after every block, so y is exp(x - sum) / maximum even in rows of one block. Wrong in every case. fold should return `top, total`.
"""Online softmax with a helper that folds one block into the state of a row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def fold(m, d, x):
    """The state of a row, its maximum m and its sum d relative to m, after the block x."""
    top = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(top == -float("inf"), 0.0, top)
    total = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return total, top


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
    cols = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        x = tl.load(
            x_row_ptr + start + cols, mask=cols < left, other=-float("inf"), eviction_policy="evict_last"
        )
        m, d = fold(m, d, x.to(tl.float32))

    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        x = tl.load(
            x_row_ptr + start + cols, mask=cols < left, other=-float("inf"), eviction_policy="evict_first"
        )
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row_ptr + start + cols, y.to(y_ptr.dtype.element_ty), mask=cols < left)


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
    cols = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        dy = tl.load(dy_row_ptr + start + cols, mask=cols < left, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + start + cols, mask=cols < left, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    for start in range(0, n_cols, BLOCK):
        left = n_cols - start
        dy = tl.load(dy_row_ptr + start + cols, mask=cols < left, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + start + cols, mask=cols < left, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row_ptr + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < left)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    num_warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=num_warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    num_warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=num_warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        result = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
