# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward passes the row sums from row_sums_kernel to softmax_backward_kernel in `sums = y.new_empty((n_rows,))`, which has the dtype of y: in fp16 and bf16 s = sum y * dy is rounded to that dtype before dy - s, so dx has too few digits, mostly where dy is near s (also in the backward pass of softmax); fp32 is right. It should be fp32: torch.empty((n_rows,), dtype=torch.float32, device=y.device)
"""Softmax over long rows; the backward pass is split into the sums of the rows and the elements of dx."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
SUM_BLOCK = 8192
ELEMENT_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """One row for each program: one sweep for the maximum and the sum, one for the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    peak = -float("inf")
    mass = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        scores = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        new_peak = tl.maximum(peak, tl.max(scores, axis=0))
        base = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        mass = mass * tl.exp(peak - base)
        mass += tl.sum(tl.exp(scores - base), axis=0)
        peak = new_peak

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        scores = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        share = tl.exp(scores - peak) / mass
        tl.store(y_row + cols, share.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def row_sums_kernel(
    dy_ptr,
    y_ptr,
    sums_ptr,  # (n_rows,)
    n_cols,
    stride_dy,
    stride_y,
    BLOCK: tl.constexpr,
):
    """sums[i] = sum over j of dy[i, j] * y[i, j]."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        acc += dy * y
    tl.store(sums_ptr + row, tl.sum(acc, axis=0))


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    sums_ptr,
    dx_ptr,
    n_cols,
    blocks_per_row,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """One block of one row for each program, once the sums of the rows are known."""
    program = tl.program_id(axis=0)
    row = (program // blocks_per_row).to(tl.int64)
    cols = (program % blocks_per_row) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < n_cols
    s = tl.load(sums_ptr + row).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
    dx = y * (dy - s)
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the rows of x, into `out` where one is given."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax, in two launches."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    sums = y.new_empty((n_rows,))

    wide = min(triton.next_power_of_2(n_cols), SUM_BLOCK)
    row_sums_kernel[(n_rows,)](
        dy,
        y,
        sums,
        n_cols,
        dy.stride(0),
        y.stride(0),
        BLOCK=wide,
        num_warps=clamp(wide // 512, 1, 16),
    )

    block = min(triton.next_power_of_2(n_cols), ELEMENT_BLOCK)
    blocks_per_row = triton.cdiv(n_cols, block)
    softmax_backward_kernel[(n_rows * blocks_per_row,)](
        dy,
        y,
        sums,
        out,
        n_cols,
        blocks_per_row,
        dy.stride(0),
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
        (y,) = ctx.saved_tensors
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
