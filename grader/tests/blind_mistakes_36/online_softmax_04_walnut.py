# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In online_softmax_kernel, first loop, m is raised before the old sum is brought to the new scale, so the factor tl.exp(m - shift) is always 1 (the old m is gone): rows of more than one block (over 4096 columns) whose maximum rises after the first block sum to less than 1; it should be a factor tl.exp(m_old - shift), with m set last. (2) In row_start, which both kernels use, tl.program_id(0) * stride is a product of int32: where rows lie so far apart that row * stride passes 2^31, it wraps and reads and writes elsewhere, forward and backward; the row number should be converted first, tl.program_id(0).to(tl.int64) * stride.
"""Softmax over long rows, forward and backward."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def row_start(ptr, stride):
    """Pointer to the first column of this program's row."""
    return ptr + tl.program_id(0) * stride


@triton.jit
def load_row(row_ptr, cols, n_cols, fill):
    """Some columns of a row in fp32, `fill` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def store_row(row_ptr, cols, n_cols, values):
    """Round to the dtype of the matrix and store what lies inside of the row."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    x_row = row_start(x_ptr, stride_x)
    y_row = row_start(y_ptr, stride_y)
    cols = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_row(x_row, start + cols, n_cols, -float("inf"))
        m = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        x = load_row(x_row, start + cols, n_cols, -float("inf"))
        store_row(y_row, start + cols, n_cols, tl.exp(x - m) * scale)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s the sum of y[i, :] * dy[i, :]; program i owns row i."""
    dy_row = row_start(dy_ptr, stride_dy)
    y_row = row_start(y_ptr, stride_y)
    dx_row = row_start(dx_ptr, stride_dx)
    cols = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = load_row(dy_row, start + cols, n_cols, 0.0)
        y = load_row(y_row, start + cols, n_cols, 0.0)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = load_row(dy_row, start + cols, n_cols, 0.0)
        y = load_row(y_row, start + cols, n_cols, 0.0)
        store_row(dx_row, start + cols, n_cols, y * (dy - s))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def sizes(n_cols: int, widest: int, per_warp: int) -> dict:
    """Width of a block, and the warps that share it."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"BLOCK": block, "num_warps": clamp(block // per_warp, 1, 8)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), **sizes(n_cols, FORWARD_BLOCK, 1024)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
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
        **sizes(n_cols, BACKWARD_BLOCK, 512),
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
