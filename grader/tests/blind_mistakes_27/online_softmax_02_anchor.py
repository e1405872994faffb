# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel: `log_d = tl.log(d)` is the natural logarithm, but it is subtracted in an exponent of base 2, `tl.exp2((x - m) * LOG2E - log_d)`; so each row is divided by d ** 0.693 in place of d, and sums to d ** 0.307, more than 1, wherever d is above 1 (every row but those of one column or with one value that towers over all others), in softmax_forward and softmax, all dtypes and sizes, and so also in the gradient of softmax(). It should be tl.log2(d). softmax_backward itself is right
"""Softmax in powers of two with a maximum and a sum for each lane, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 2048
BACKWARD_BLOCK = 8192
LOG2E = 1.4426950408889634  # exp(t) = 2 ** (t * LOG2E)


@triton.jit
def fetch(row_ptr, cols, n_cols):
    """One block of a row as fp32, 0 past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    LOG2E: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Softmax of row i in program i: the lanes are kept apart in the loop, and meet once behind it."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    lane_max = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    lane_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        raised = tl.maximum(lane_max, x)
        base = tl.where(raised == -float("inf"), 0.0, raised)
        lane_sum = lane_sum * tl.exp2((lane_max - base) * LOG2E) + tl.exp2((x - base) * LOG2E)
        lane_max = raised

    m = tl.max(lane_max, axis=0)
    d = tl.sum(lane_sum * tl.exp2((lane_max - m) * LOG2E), axis=0)
    log_d = tl.log(d)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E - log_d)
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]) in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        s += tl.sum(fetch(dy_row_ptr, cols, n_cols) * fetch(y_row_ptr, cols, n_cols), axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dx = fetch(y_row_ptr, cols, n_cols) * (fetch(dy_row_ptr, cols, n_cols) - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def width(n_cols: int, widest: int) -> int:
    """Columns of one block."""
    return clamp(triton.next_power_of_2(n_cols), 1, widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    block = width(x.size(1), FORWARD_BLOCK)
    warps = clamp(block // 512, 1, 4)
    online_softmax_kernel[(x.size(0),)](
        x, y, x.size(1), x.stride(0), y.stride(0), LOG2E=LOG2E, BLOCK=block, num_warps=warps
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    dx = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device) if out is None else out
    block = width(dy.size(1), BACKWARD_BLOCK)
    warps = clamp(block // 512, 1, 16)
    softmax_backward_kernel[(dy.size(0),)](
        dy, y, dx, dy.size(1), dy.stride(0), y.stride(0), dx.stride(0), BLOCK=block, num_warps=warps
    )
    return dx


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
        if dy.stride(1) != 1:
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
