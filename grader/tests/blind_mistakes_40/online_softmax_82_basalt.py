# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `def merge(m_a, m_b, d_a, d_b)`: `tl.reduce` calls its function with all of a and then all of b, so it should be `merge(m_a, d_a, m_b, d_b)` (and the call in `forward_kernel` `merge(m, d, m_block, d_block)`). Within `tl.reduce((x, one), 0, merge)` sums are taken for maxima and maxima for sums: wrong in all cases with more than one column.
"""Online softmax: a row is reduced as pairs (maximum, sum relative to it), with one operator for all levels."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = 4096
# Below every value of a row; it stands for -inf and for lanes past the end, so that no difference is NaN.
FLOOR = tl.constexpr(-1e30)


@triton.jit
def merge(m_a, m_b, d_a, d_b):
    """Combine the maxima and the sums of two parts a and b of a row."""
    m = tl.maximum(m_a, m_b)
    return m, d_a * tl.exp(m_a - m) + d_b * tl.exp(m_b - m)


@triton.jit
def load_row(row_ptr, cols, n_cols):
    """Columns `cols` of a row in fp32, none of them below FLOOR."""
    x = tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return tl.where(cols < n_cols, tl.maximum(x, FLOOR), FLOOR)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    m = tl.full((), FLOOR, dtype=tl.float32)
    d = tl.full((), 0.0, dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        x = load_row(x_row, cols, n_cols)
        # A single column is a part of its own: its maximum is x, its sum is 1.
        one = tl.where(cols < n_cols, 1.0, 0.0)
        m_block, d_block = tl.reduce((x, one), 0, merge)
        m, d = merge(m, m_block, d, d_block)

    scale = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + lane
        y = tl.exp(load_row(x_row, cols, n_cols) - m) * scale
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_row + start + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=inside, other=0.0).to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = start + lane < n_cols
        dy = tl.load(dy_row + start + lane, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_row + start + lane, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def launch_options(n_cols: int) -> dict:
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK)
    return {"BLOCK": block, "num_warps": 8 if block == MAX_BLOCK else 4}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    forward_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **launch_options(n_cols))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, **launch_options(n_cols))
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
