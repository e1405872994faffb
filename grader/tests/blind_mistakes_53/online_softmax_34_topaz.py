# labs/lab2_online_softmax/online_softmax.py | corner | In row_start `(row * stride).to(tl.int64)` is converted after the product, and backward_kernel has `row = tl.program_id(0)` in int32 (forward_kernel converts first); it should be `tl.program_id(0).to(tl.int64)` in backward_kernel. softmax_backward is wrong, or reads and writes out of bounds, where rows of dy, y or out begin beyond 2^31 elements (unless the stride itself exceeds int32).
"""Online softmax by a reduction over pairs of maximum and sum, and its gradient."""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def join_pairs(m_a, d_a, m_b, d_b):
    """Two parts of a row, each with its maximum and its sum relative to it, as one."""
    m = tl.maximum(m_a, m_b)
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def row_start(ptr, row, stride):
    """Where a row begins; rows may lie far apart."""
    return ptr + (row * stride).to(tl.int64)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = row_start(x_ptr, row, stride_x)
    y_row = row_start(y_ptr, row, stride_y)
    cols = tl.arange(0, BLOCK)
    ones = tl.full([BLOCK], 1.0, tl.float32)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        x = tl.load(x_row + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_last")
        m_block, d_block = tl.reduce((x.to(tl.float32), ones), 0, join_pairs)
        m, d = join_pairs(m, d, m_block, d_block)
    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        x = tl.load(x_row + start + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) * scale
        tl.store(y_row + start + cols, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    dy_row = row_start(dy_ptr, row, stride_dy)
    y_row = row_start(y_ptr, row, stride_y)
    dx_row = row_start(dx_ptr, row, stride_dx)
    cols = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        dy = tl.load(dy_row + start + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + start + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        s += tl.reduce(dy.to(tl.float32) * y.to(tl.float32), 0, plus)
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        dy = tl.load(dy_row + start + cols, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + start + cols, mask=inside, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def width_and_warps(n_cols: int) -> tuple:
    """Columns of one block, and one warp for each 512 of them."""
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    return block, max(block // 512, 1)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, into `out` where one is given."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block, warps = width_and_warps(n_cols)
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, into `out` where one is given."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block, warps = width_and_warps(n_cols)
    strides = [tensor.stride(0) for tensor in (dy, y, out)]
    backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
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
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
