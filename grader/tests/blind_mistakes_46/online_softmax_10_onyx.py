# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `backward_kernel` the gradient is that of log-softmax: `partial += dy.to(tl.float32)` sums dy alone and `dx = dy - y * row_sum` is stored. Right is the sum of `y * dy` and `dx = y * (dy - row_sum)`. It shows in all cases with more than one column, also in the gradient of `softmax`.
"""Row softmax with one running maximum per lane, its gradient, and the autograd function around both."""

import torch
import triton
import triton.language as tl

WIDEST = 4096  # columns of one block; a lane keeps a maximum and a sum of its own


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Each lane runs the online recurrence over its own columns; the lanes meet once, after the last block."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    lane_max = tl.full((BLOCK,), -float("inf"), tl.float32)
    lane_sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(lane_max, x)
        shift = tl.where(higher == -float("inf"), 0.0, higher)  # a lane may have seen nothing but -inf
        lane_sum = lane_sum * tl.exp(lane_max - shift) + tl.exp(x - shift)
        lane_max = higher

    top = tl.max(lane_max, axis=0)
    total = tl.sum(lane_sum * tl.exp(lane_max - top), axis=0)
    scale = 1.0 / total

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) * scale
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """The sum over the row first, one partial sum per lane; then dx, block by block."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    partial = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        partial += dy.to(tl.float32)
    row_sum = tl.sum(partial, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = dy - y * row_sum
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first")


def block_and_warps(n_cols: int):
    """The width of a block and the warps that work on it: at most 16 columns for a thread."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return block, 8 if block > 2048 else 4


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the columns of x; the result goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of the softmax, from the incoming gradient and the forward result."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols)
    backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above as one differentiable function."""

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
    """Differentiable softmax over the columns of x."""
    return OnlineSoftmax.apply(x)
