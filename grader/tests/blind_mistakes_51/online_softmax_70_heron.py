# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `lanewise_softmax_kernel`, `row_sum = tl.sum(lane_sum * tl.exp2(lane_max - row_max), axis=0)` lacks the factor log2(e) that every other exponent has: it should be `tl.exp2((lane_max - row_max) * LOG2E)`. The sum is too large (rows sum to less than 1) wherever two lanes have different maxima, i.e. in all cases but rows of one column or of equal values.
"""Softmax over rows of any length: every lane keeps a maximum and a sum of its own, merged once at the end of the row."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)  # exp(a) = exp2(a * LOG2E)

FORWARD_BLOCK = 4096  # three values are alive in each lane
BACKWARD_BLOCK = 8192


@triton.jit
def lanewise_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = softmax of x[i, :]; program i owns row i, lane j owns columns j, j + BLOCK, j + 2 * BLOCK, ..."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    lane_max = tl.full([BLOCK], -float("inf"), tl.float32)
    lane_sum = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(
            x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        new_max = tl.maximum(lane_max, x)
        # A lane that has seen nothing but -inf is shifted by 0: its terms are 0 with any finite shift.
        shift = tl.where(new_max == -float("inf"), 0.0, new_max)
        lane_sum = lane_sum * tl.exp2((lane_max - shift) * LOG2E) + tl.exp2((x - shift) * LOG2E)
        lane_max = new_max

    # Now the lanes of the row are brought to the scale of its maximum, which is finite.
    row_max = tl.max(lane_max, axis=0)
    row_sum = tl.sum(lane_sum * tl.exp2(lane_max - row_max), axis=0)
    inverse = 1.0 / row_sum

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        x = tl.load(
            x_row_ptr + cols, mask=inside, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp2((x - row_max) * LOG2E) * inverse
        tl.store(
            y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
        )


@triton.jit
def lanewise_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :])."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    products = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        products += dy * y
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        inside = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(
            dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
        )


def width_and_warps(n_cols: int, widest: int, per_warp: int):
    """A power of two that covers the row or is the widest, and a power of two of warps for it."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, min(max(block // per_warp, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block, warps = width_and_warps(n_cols, FORWARD_BLOCK, 512)
    lanewise_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block, warps = width_and_warps(n_cols, BACKWARD_BLOCK, 512)
    lanewise_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
