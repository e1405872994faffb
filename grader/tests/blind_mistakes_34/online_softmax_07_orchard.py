# labs/lab2_online_softmax/online_softmax.py | contract | softmax_forward: where no `out` is given it allocates `x.new_empty_strided(x.shape, x.stride())`, which has the row stride of x; for an x with padded rows the returned matrix is therefore not contiguous, against "otherwise the function returns a new contiguous matrix" (softmax returns the same one). All numbers are right. Shows only without `out` and with padded x. Should be `x.new_empty(x.shape)` or torch.empty of that shape.
"""Online softmax, its gradient, and the two as one autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 16384


@triton.jit
def fold(m, d, x):
    """The maximum and the sum (m, d) of some columns, after those of the block x as well."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program i folds row i into (m, d), then stores its shares."""
    row = tl.program_id(axis=0).to(tl.int64)
    source = x_ptr + row * stride_x
    target = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(source + offs, mask=offs < n_cols, other=-float("inf"), eviction_policy="evict_last")
        m, d = fold(m, d, x.to(tl.float32))
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(source + offs, mask=offs < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) * scale
        tl.store(
            target + offs,
            y.to(y_ptr.dtype.element_ty),
            mask=offs < n_cols,
            eviction_policy="evict_first",
        )


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
    """Program i adds up y * dy of row i, then stores dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    target = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + offs, mask=offs < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + offs, mask=offs < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + offs, mask=offs < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + offs, mask=offs < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(
            target + offs,
            dx.to(dx_ptr.dtype.element_ty),
            mask=offs < n_cols,
            eviction_policy="evict_first",
        )


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def width_for(n_cols: int) -> int:
    """Columns of a block for rows of n_cols."""
    return clamp(triton.next_power_of_2(n_cols), 1, WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = x.new_empty_strided(x.shape, x.stride())
    n_rows, n_cols = x.shape
    block = width_for(n_cols)
    warps = clamp(block // 1024, 1, 4) if block < WIDEST else 8
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    block = width_for(n_cols)
    warps = clamp(block // 512, 4, 32)
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
