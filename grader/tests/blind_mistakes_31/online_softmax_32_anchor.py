# labs/lab2_online_softmax/online_softmax.py | right | right
"""Softmax by a fixed number of programs, which take the rows in turn; gradients in any layout."""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024  # at most so many programs share the rows
BLOCK_FORWARD = 8192
BLOCK_BACKWARD = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols), columns contiguous
    y_ptr,  # likewise
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row = x_ptr + row * stride_x
        y_row = y_ptr + row * stride_y

        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            block_m = tl.max(x, axis=0)
            # A block of -inf alone has nothing to add, whatever it is measured from.
            block_zero = tl.where(block_m == -float("inf"), 0.0, block_m)
            block_d = tl.sum(tl.exp(x - block_zero), axis=0)
            # Two pairs (maximum, sum) become one.
            both = tl.maximum(m, block_m)
            zero = tl.where(both == -float("inf"), 0.0, both)
            d = d * tl.exp(m - zero) + block_d * tl.exp(block_m - zero)
            m = both

        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=cols < n_cols)

        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols), any strides
    y_ptr,  # (n_rows, n_cols), columns contiguous
    dx_ptr,  # likewise
    n_rows,
    n_cols,
    stride_dy,
    stride_dy_col,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx

        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row + cols.to(tl.int64) * stride_dy_col, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)

        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            inside = cols < n_cols
            dy = tl.load(dy_row + cols.to(tl.int64) * stride_dy_col, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)

        row += tl.num_programs(axis=0)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_FORWARD)
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
    """Gradient of softmax for its input. dy may have any strides, also 0; y and out have contiguous columns."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK_BACKWARD)
    softmax_backward_kernel[(min(n_rows, PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
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
        if not ctx.needs_input_grad[0]:
            return None
        (y,) = ctx.saved_tensors
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols)."""
    return OnlineSoftmax.apply(x)
