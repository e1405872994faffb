# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. The kernels take a stride of rows and of columns for each tensor, with int64 offsets, so backward reads expanded, transposed or spread gradients in place without `contiguous()`; dx is computed as `dy * y - s * y`, and host code asserts shapes and dtypes.
"""Softmax and its gradient on matrices of any strides: no tensor is ever copied."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def places(start, n_cols, stride, BLOCK: tl.constexpr):
    """Offsets of a block of columns from the start of the row, and which of them exist."""
    cols = start + tl.arange(0, BLOCK)
    return cols.to(tl.int64) * stride, cols < n_cols


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, x_row, x_col, y_row, y_col, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row
    y_ptr += row * y_row
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        at, exists = places(start, n_cols, x_col, BLOCK)
        x = tl.load(x_ptr + at, mask=exists, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        nothing_yet = m_new == -float("inf")
        base = tl.where(nothing_yet, 0.0, m_new)
        d = tl.where(nothing_yet, 0.0, d * tl.exp(m - base) + tl.sum(tl.exp(x - base), axis=0))
        m = m_new
    for start in range(0, n_cols, BLOCK):
        at, exists = places(start, n_cols, x_col, BLOCK)
        x = tl.load(x_ptr + at, mask=exists, other=-float("inf")).to(tl.float32)
        at, exists = places(start, n_cols, y_col, BLOCK)
        tl.store(y_ptr + at, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=exists)


@triton.jit
def backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, dy_row, dy_col, y_row, y_col, dx_row, dx_col, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_row
    y_ptr += row * y_row
    dx_ptr += row * dx_row
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        at, exists = places(start, n_cols, dy_col, BLOCK)
        dy = tl.load(dy_ptr + at, mask=exists, other=0.0).to(tl.float32)
        at, exists = places(start, n_cols, y_col, BLOCK)
        y = tl.load(y_ptr + at, mask=exists, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        at, exists = places(start, n_cols, dy_col, BLOCK)
        dy = tl.load(dy_ptr + at, mask=exists, other=0.0).to(tl.float32)
        at, exists = places(start, n_cols, y_col, BLOCK)
        y = tl.load(y_ptr + at, mask=exists, other=0.0).to(tl.float32)
        at, exists = places(start, n_cols, dx_col, BLOCK)
        tl.store(dx_ptr + at, (dy * y - s * y).to(dx_ptr.dtype.element_ty), mask=exists)


def check(reference: torch.Tensor, others: list) -> None:
    """All of these are matrices of one shape and one dtype."""
    assert reference.ndim == 2, "expected a matrix"
    for other in others:
        assert other.shape == reference.shape, f"{other.shape} is not {reference.shape}"
        assert other.dtype == reference.dtype, f"{other.dtype} is not {reference.dtype}"


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = x.new_empty(x.shape)
    check(x, [out])
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    strides = (*x.stride(), *out.stride())
    forward_kernel[(n_rows,)](x, out, n_cols, *strides, BLOCK=block, num_warps=8 if block > 2048 else 4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    check(dy, [y, out])
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    strides = (*dy.stride(), *y.stride(), *out.stride())
    backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=8 if block > 2048 else 4)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The gradient is read where autograd has it, whatever its strides are."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(y := softmax_forward(x))
        return y

    @staticmethod
    def backward(ctx, dy):
        return softmax_backward(dy, *ctx.saved_tensors)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
