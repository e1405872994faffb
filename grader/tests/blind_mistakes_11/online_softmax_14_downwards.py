# labs/lab2_online_softmax/online_softmax.py | right | the second sweep of both kernels goes from the last block to the first, whose data is still in the cache; exp2 of (x - m) * log2(e), subtracted first; the gradient is a kernel that takes a column stride of dy, so dy is never copied.
"""Online softmax: forwards for the sums, backwards for the results."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def exp_of(difference):
    """e to the power of a difference that is not above 0."""
    return tl.exp2(difference * 1.4426950408889634)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + lanes
    y_ptrs = y_ptr + row * stride_y + lanes
    blocks = tl.cdiv(n_cols, BLOCK)
    m = -float("inf")
    d = 0.0
    for i in range(blocks):
        start = i * BLOCK
        x = tl.load(x_ptrs + start, mask=start + lanes < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * exp_of(m - shift) + tl.sum(exp_of(x - shift), axis=0)
        m = m_new
    for i in range(blocks):
        start = (blocks - 1 - i) * BLOCK
        mask = start + lanes < n_cols
        x = tl.load(x_ptrs + start, mask=mask, other=-float("inf")).to(tl.float32)
        y = exp_of(x - m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, step_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """step_dy: elements from one column of dy to the next, 0 in an expanded gradient."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    blocks = tl.cdiv(n_cols, BLOCK)
    s = 0.0
    for i in range(blocks):
        cols = i * BLOCK + lanes
        dy = tl.load(dy_row + cols * step_dy, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for i in range(blocks):
        cols = (blocks - 1 - i) * BLOCK + lanes
        dy = tl.load(dy_row + cols * step_dy, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4 if block <= 4096 else 8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = y.new_empty(y.shape)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=4 if block <= 2048 else 8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
