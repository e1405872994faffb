# labs/lab2_online_softmax/online_softmax.py | corner | `LOW = tl.constexpr(-1.0e9)`, to which `scores` raises every value with `tl.maximum(x, LOW)`, lies above values that the README promises (finite values up to 1e28 from 0); it should be below them, such as -3.0e38. Shows in fp32 and bf16 rows whose maximum is below or near -1e9 (e.g. all of a row near -1e27): they become uniform, and lanes past the end of the row are counted; fp16 is always right.
"""Online softmax without a case for -inf: scores are cut off at a low, finite number. With its gradient."""

import torch
import triton
import triton.language as tl

LOW = tl.constexpr(-1.0e9)  # stands for -inf, so that no difference is NaN
MAX_BLOCK = 8192


@triton.jit
def scores(x_row, cols, n_cols):
    """Columns of a row in fp32, not below LOW, and LOW past the end of the row."""
    x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    return tl.maximum(x, LOW)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = tl.full((1,), LOW, dtype=tl.float32)
    d = tl.zeros((1,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = scores(x_row, cols, n_cols)
        higher = tl.maximum(m, tl.max(x, axis=0))
        # What was added for columns at LOW vanishes here as soon as the maximum rises.
        d = d * tl.exp(m - higher) + tl.sum(tl.exp(x - higher), axis=0)
        m = higher
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp(scores(x_row, cols, n_cols) - m) * scale
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s = sum of y[i, :] * dy[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def block_and_warps(n_cols: int, columns_per_warp: int):
    """Width of a block, and warps for it: powers of two."""
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    return block, min(max(block // columns_per_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); the result goes to `out` if there is one."""
    n_rows, n_cols = x.shape
    y = torch.empty(n_rows, n_cols, dtype=x.dtype, device=x.device) if out is None else out
    block, warps = block_and_warps(n_cols, 1024)
    forward_kernel[(n_rows,)](x, y, n_cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=warps)
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from that of its result y; it goes to `out` if there is one."""
    n_rows, n_cols = y.shape
    dx = torch.empty(n_rows, n_cols, dtype=dy.dtype, device=dy.device) if out is None else out
    block, warps = block_and_warps(n_cols, 512)
    backward_kernel[(n_rows,)](
        dy, y, dx, n_cols, dy.stride(0), y.stride(0), dx.stride(0), BLOCK=block, num_warps=warps
    )
    return dx


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
