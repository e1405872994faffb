# labs/lab2_online_softmax/online_softmax.py | corner | Exercise softmax: in `OnlineSoftmax.backward`, `if dy.stride(0) < dy.shape[1]: dy = dy.contiguous()` tests whether rows overlap, and not whether columns are contiguous; it should be `dy.stride(1) != 1` (or always `dy.contiguous()`). It shows only where the row stride of dy is at least n_cols and its column stride is not 1: dy with every second column of a wider matrix (also one column of a wider matrix, expanded). Expanded from one number, transposed and padded gradients are right.
"""Online softmax over rows, its gradient, and the autograd function: two sweeps each, helpers for the loads."""

import torch
import triton
import triton.language as tl

WIDEST = 16384


@triton.jit
def read(row_ptr, cols, n_cols, fill):
    """Columns `cols` of a row as fp32, `fill` where the row has ended."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill, eviction_policy="evict_last").to(tl.float32)


@triton.jit
def reread(row_ptr, cols, n_cols, fill):
    """As read(), for the last time."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill, eviction_policy="evict_first").to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, values):
    """Store fp32 values in the dtype of the row."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def fold(m, d, x):
    """The maximum and the sum after one more block x."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i of y from row i of x; one program for each row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        m, d = fold(m, d, read(x_row, start + lanes, n_cols, -float("inf")))
    for start in range(0, n_cols, BLOCK):
        x = reread(x_row, start + lanes, n_cols, -float("inf"))
        write(y_row, start + lanes, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Row i of dx = y * (dy - s), s = sum of y * dy over the row; one program for each row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        s += tl.sum(read(dy_row, cols, n_cols, 0.0) * read(y_row, cols, n_cols, 0.0), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        y = reread(y_row, cols, n_cols, 0.0)
        write(dx_row, cols, n_cols, y * (reread(dy_row, cols, n_cols, 0.0) - s))


def block_for(n_cols: int) -> int:
    """Columns that a program takes at a time."""
    return min(triton.next_power_of_2(n_cols), WIDEST)


def new_like(x: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix of the shape and dtype of x."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    if out is None:
        out = new_like(x)
    n_rows, n_cols = x.shape
    block = block_for(n_cols)
    warps = 8 if block == WIDEST else min(max(block // 1024, 1), 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the forward result y."""
    if out is None:
        out = new_like(dy)
    n_rows, n_cols = dy.shape
    block = block_for(n_cols)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward and its gradient."""

    @staticmethod
    def forward(ctx, x):
        """The result, kept for the gradient."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx; a gradient that already lies row by row, also with gaps, is read where it is."""
        (y,) = ctx.saved_tensors
        if dy.stride(0) < dy.shape[1]:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
