# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) share_out(), which both passes use, gives each of up to 128 programs n_rows // programs rows, rounded down: where n_rows is over 128 and no multiple of 128, the last n_rows % 128 rows are never written, forward and backward; it should round up, triton.cdiv(n_rows, programs), with a check row < n_rows in the kernels. (2) softmax_forward passes x.stride(0) for stride_y as well: where x and out have different row strides, rows after the first are written to the wrong place, into gaps or past the end; it should be out.stride(0).
"""Softmax and its gradient, with a handful of neighbouring rows for each program."""

import torch
import triton
import triton.language as tl

PROGRAMS = 128
FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_each, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i computes the rows i * n_each to (i + 1) * n_each - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * n_each
    offsets = tl.arange(0, BLOCK)
    for i in range(0, n_each):
        row = first + i
        x_row = x_ptr + row * stride_x + offsets
        y_row = y_ptr + row * stride_y + offsets
        highest = -3.4028234663852886e38  # finite, so that no difference is NaN
        total = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_row + start, mask=offsets < n_cols - start, other=-float("inf"))
            x = x.to(tl.float32)
            before = highest
            highest = tl.maximum(before, tl.max(x, axis=0))
            total = total * tl.exp(before - highest) + tl.sum(tl.exp(x - highest), axis=0)
        for start in range(0, n_cols, BLOCK):
            x = tl.load(x_row + start, mask=offsets < n_cols - start, other=-float("inf"))
            y = tl.exp(x.to(tl.float32) - highest) / total
            tl.store(y_row + start, y.to(y_ptr.dtype.element_ty), mask=offsets < n_cols - start)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_each, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)) for the same rows."""
    first = tl.program_id(axis=0).to(tl.int64) * n_each
    offsets = tl.arange(0, BLOCK)
    for i in range(0, n_each):
        row = first + i
        dy_row = dy_ptr + row * stride_dy + offsets
        y_row = y_ptr + row * stride_y + offsets
        dx_row = dx_ptr + row * stride_dx + offsets
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            dy = tl.load(dy_row + start, mask=offsets < n_cols - start, other=0.0).to(tl.float32)
            y = tl.load(y_row + start, mask=offsets < n_cols - start, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            dy = tl.load(dy_row + start, mask=offsets < n_cols - start, other=0.0).to(tl.float32)
            y = tl.load(y_row + start, mask=offsets < n_cols - start, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + start, dx.to(dx_ptr.dtype.element_ty), mask=offsets < n_cols - start)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def share_out(n_rows: int) -> tuple:
    """How many programs there are, and how many rows each of them has."""
    programs = clamp(n_rows, 1, PROGRAMS)
    return programs, n_rows // programs


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    programs, n_each = share_out(n_rows)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(programs,)](
        x,
        out,
        n_each,
        n_cols,
        x.stride(0),
        x.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    programs, n_each = share_out(n_rows)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(programs,)](
        dy,
        y,
        out,
        n_each,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 256, 1, 8),
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
