# labs/lab2_online_softmax/online_softmax.py | right | Right. Unusual: own combine functions with `tl.reduce`, exp2 of (x - m) * log2(e), a running maximum that starts at the lowest finite number; the gradient kernel takes the column stride of dy as well, so autograd's dy (expanded, transposed, spread) is read in place and never copied.
"""Online softmax and its gradient with reductions of their own; the gradient takes dy as autograd lays it out."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
SPAN = 8192  # elements of a row that are in registers at a time


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def grown(x, m):
    """2 ** ((x - m) * log2(e)), which is exp(x - m)."""
    return tl.exp2((x - m) * LOG2E)


@triton.jit
def softmax_of_row(x_ptr, y_ptr, n_cols, x_rows_apart, y_rows_apart, SPAN: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * x_rows_apart
    y_ptr += row * y_rows_apart
    span = tl.arange(0, SPAN)

    m = -3.4028234663852886e38  # the lowest finite number: -inf would give -inf - -inf
    d = 0.0
    for turn in range(tl.cdiv(n_cols, SPAN)):
        cols = turn * SPAN + span
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_next = larger(m, tl.reduce(x, 0, larger))
        d = d * grown(m, m_next) + tl.reduce(grown(x, m_next), 0, plus)
        m = m_next

    for turn in range(tl.cdiv(n_cols, SPAN)):
        cols = turn * SPAN + span
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + cols, (grown(x, m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_of_row(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    dy_rows_apart,
    dy_cols_apart,  # 1, or 0 of an expanded dy, or any other number
    y_rows_apart,
    dx_rows_apart,
    SPAN: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * dy_rows_apart
    y_ptr += row * y_rows_apart
    dx_ptr += row * dx_rows_apart
    span = tl.arange(0, SPAN)

    s = 0.0
    for turn in range(tl.cdiv(n_cols, SPAN)):
        cols = turn * SPAN + span
        dy = tl.load(dy_ptr + cols.to(tl.int64) * dy_cols_apart, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.reduce(dy * y, 0, plus)

    for turn in range(tl.cdiv(n_cols, SPAN)):
        cols = turn * SPAN + span
        dy = tl.load(dy_ptr + cols.to(tl.int64) * dy_cols_apart, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def new_like(matrix: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix of the same shape and dtype."""
    return matrix.new_empty(matrix.shape)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); x and `out` have contiguous columns."""
    out = new_like(x) if out is None else out
    n_rows, n_cols = x.shape
    span = min(triton.next_power_of_2(n_cols), SPAN)
    softmax_of_row[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), SPAN=span, num_warps=8 if span == SPAN else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols).

    The columns of dy may be any number of elements apart; those of y and `out` are contiguous.
    """
    out = new_like(y) if out is None else out
    n_rows, n_cols = y.shape
    span = min(triton.next_power_of_2(n_cols), SPAN)
    gradient_of_row[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        SPAN=span,
        num_warps=min(max(span // 512, 4), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two kernels for autograd."""

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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
