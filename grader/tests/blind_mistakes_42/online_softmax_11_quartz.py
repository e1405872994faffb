# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `join`, `tl.where(d_a > d_b, d_a + d_b * scale, d_b + d_a * scale)` chooses by the sums; it should choose by the maxima, `m_a > m_b`, because the side with the smaller maximum has to be rescaled. d is wrong in nearly all rows of three columns or more; right for one or two columns and for constant rows.
"""Softmax as one reduction over pairs (maximum, sum), its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

PAIR_BLOCK = 4096  # a lane holds a pair, so blocks are narrower than those of the gradient
BACKWARD_BLOCK = 16384
EMPTY = tl.constexpr(float("-inf"))  # maximum of no columns


@triton.jit
def join(m_a, d_a, m_b, d_b):
    """Pair of two sets of columns together, from the pair (m, d) of each: one exp for both.

    d counts multiples of exp(m). Equal maxima, also two of no columns, have nothing to rescale.
    """
    gap = tl.where(m_a == m_b, 0.0, m_a - m_b)
    scale = tl.exp(-tl.abs(gap))
    d = tl.where(d_a > d_b, d_a + d_b * scale, d_b + d_a * scale)
    return tl.maximum(m_a, m_b), d


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d, with (m, d) joined from the pairs (x[i, j], 1); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(x_row + start + lanes, mask=inside, other=EMPTY, eviction_policy="evict_last")
        x = x.to(tl.float32)
        ones = tl.where(x == EMPTY, 0.0, 1.0)
        m_block, d_block = tl.reduce((x, ones), axis=0, combine_fn=join)
        m, d = join(m, d, m_block, d_block)

    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        x = tl.load(x_row + start + lanes, mask=inside, other=EMPTY, eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s) with s = sum y[i, :] * dy[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + start + lanes, mask=inside, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + start + lanes, mask=inside, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def new_matrix(like: torch.Tensor) -> torch.Tensor:
    """An empty contiguous matrix of the shape, dtype and device of another."""
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    out = new_matrix(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), PAIR_BLOCK)
    warps = max(1, min(4, block // 512))
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    out = new_matrix(y) if out is None else out
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = max(4, min(32, block // 512))
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
