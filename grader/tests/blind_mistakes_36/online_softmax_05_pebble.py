# labs/lab2_online_softmax/online_softmax.py | right | right
"""Row softmax: one sweep from left to right, and one back from right to left."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i.

    The way back begins with the blocks that were read last, which are the likeliest to be in a cache.
    """
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    n_blocks = tl.cdiv(n_cols, BLOCK)

    # The lowest finite number of fp32 instead of -inf: a difference from it is never NaN.
    m = -3.4028234663852886e38
    d = 0.0
    for i in range(0, n_blocks):
        cols = i * BLOCK + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        d *= tl.exp(m - m_new)
        d += tl.sum(tl.exp(x - m_new), axis=0)
        m = m_new

    for i in range(0, n_blocks):
        cols = (n_blocks - 1 - i) * BLOCK + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]), there and back again."""
    row = tl.program_id(0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    n_blocks = tl.cdiv(n_cols, BLOCK)

    partial = tl.zeros([BLOCK], tl.float32)
    for i in range(0, n_blocks):
        cols = i * BLOCK + lanes
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        partial += y * dy
    s = tl.sum(partial, axis=0)

    for i in range(0, n_blocks):
        cols = (n_blocks - 1 - i) * BLOCK + lanes
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def block_and_warps(n_cols: int, widest: int, columns_per_warp: int) -> tuple:
    """The width of a block for rows of n_cols columns, and its warps."""
    block = clamp(triton.next_power_of_2(n_cols), 1, widest)
    return block, clamp(block // columns_per_warp, 1, 8)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x; to `out` where one is given, else to a new matrix."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block, warps = block_and_warps(n_cols, FORWARD_BLOCK, 1024)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block, warps = block_and_warps(n_cols, BACKWARD_BLOCK, 512)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two passes as one differentiable function."""

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
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
