# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In online_softmax_kernel, second sweep, `tl.exp2((x - m - bits) * LOG2E)` multiplies bits = log2(d), which is in base 2 already, by log2(e) once more: each row is divided by d ** 1.4427 in place of d, so it sums to less than 1. Shows in softmax_forward and in softmax (y, and the dx computed from it) in every row with d != 1, that is nearly always (right only for a single column, or where one value stands so far above the rest that d is 1); softmax_backward itself is right. Should be `tl.exp2((x - m) * LOG2E - bits)`.
"""Softmax along rows in powers of two, its gradient, and an autograd function of both."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
PROGRAMS = 2048  # at most so many programs share the rows

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def read(row_ptr, cols, n_cols, filler):
    """Columns of a row as fp32, `filler` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=filler).to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, values):
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program p owns the rows p, p + programs, p + 2 * programs, ..."""
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row_ptr = x_ptr + row * stride_x
        y_row_ptr = y_ptr + row * stride_y

        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = read(x_row_ptr, start + tl.arange(0, BLOCK), n_cols, -float("inf"))
            top = tl.maximum(m, tl.max(x, axis=0))
            # Nothing but -inf so far: any finite base gives 0 for each exponential.
            base = tl.where(top == -float("inf"), 0.0, top)
            kept = d * tl.exp2((m - base) * LOG2E)
            d = kept + tl.sum(tl.exp2((x - base) * LOG2E), axis=0)
            m = top

        # A subtraction in the exponent takes the place of a division for each element.
        bits = tl.log2(d)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = read(x_row_ptr, cols, n_cols, -float("inf"))
            write(y_row_ptr, cols, n_cols, tl.exp2((x - m - bits) * LOG2E))

        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_rows, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum of y * dy), rows dealt out as in the forward pass."""
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row_ptr = dy_ptr + row * stride_dy
        y_row_ptr = y_ptr + row * stride_y
        dx_row_ptr = dx_ptr + row * stride_dx

        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            products += read(dy_row_ptr, cols, n_cols, 0.0) * read(y_row_ptr, cols, n_cols, 0.0)
        s = tl.sum(products, axis=0)

        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = read(dy_row_ptr, cols, n_cols, 0.0)
            y = read(y_row_ptr, cols, n_cols, 0.0)
            write(dx_row_ptr, cols, n_cols, y * (dy - s))

        row += tl.num_programs(axis=0)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); the result goes to `out` if there is one."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, from the incoming gradient dy and the result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
