# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: the backward kernel takes both strides of dy (int64 column offsets), so expanded, transposed and spread gradients are read in place, without `contiguous()`; lane-wise partial sums; exp2.
"""Online softmax, and a gradient kernel that reads an incoming gradient in whatever layout it comes."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def _exp_of(x, m):
    """exp(x - m), where the difference is taken before it is scaled for exp2."""
    return tl.exp2((x - m) * 1.4426950408889634)


@triton.jit
def _forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x_ptrs = x_ptr + row * stride_x + cols
    y_ptrs = y_ptr + row * stride_y + cols
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(
            x_ptrs + start, mask=cols < n_cols - start, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        above = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(above > -float("inf"), above, 0.0)
        d = d * _exp_of(m, shift) + tl.sum(_exp_of(x, shift), axis=0)
        m = above
    for start in range(0, n_cols, BLOCK):
        left = cols < n_cols - start
        x = tl.load(x_ptrs + start, mask=left, other=-float("inf"), eviction_policy="evict_first")
        y = _exp_of(x.to(tl.float32), m) / d
        tl.store(y_ptrs + start, y.to(y_ptr.dtype.element_ty), mask=left, eviction_policy="evict_first")


@triton.jit
def _backward_kernel(
    dy_ptr,  # (n_rows, n_cols), any strides, 0 among them
    y_ptr,  # (n_rows, n_cols), columns contiguous
    dx_ptr,  # (n_rows, n_cols), columns contiguous
    n_cols,
    stride_dy_row,
    stride_dy_col,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy_row
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    partial = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols.to(tl.int64) * stride_dy_col, mask=inside, other=0.0)
        y = tl.load(y_row + cols, mask=inside, other=0.0)
        partial += dy.to(tl.float32) * y.to(tl.float32)
    s = tl.sum(partial, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < n_cols
        dy = tl.load(dy_row + cols.to(tl.int64) * stride_dy_col, mask=inside, other=0.0)
        y = tl.load(y_row + cols, mask=inside, other=0.0)
        dx = (dy.to(tl.float32) - s) * y.to(tl.float32)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block > 4096 else 4 if block > 512 else 1
    _forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy in any layout and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = 8 if block > 2048 else 4
    _backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
