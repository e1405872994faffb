# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `merge`, `d = tl.maximum(d1, d2) + tl.minimum(d1, d2) * tl.exp(-tl.abs(m1 - m2))` keeps the larger sum, not the sum of the part with the larger maximum: it should be `tl.where(m1 > m2, d1, d2) + tl.where(m1 > m2, d2, d1) * tl.exp(-tl.abs(m1 - m2))`. Wrong for nearly all rows of three or more columns; right for one or two columns and for equal values.
"""Softmax over rows of any length: maximum and sum are one value, and tl.reduce merges these values pair by pair."""

import torch
import triton
import triton.language as tl

FORWARD_LANES = 512
BACKWARD_BLOCK = 8192


@triton.jit
def merge(m1, d1, m2, d2):
    """Two parts of a row as one: (m, d) with m the maximum of a part and d its sum of exp(x - m).

    One exp is enough for a pair: the part on the larger scale stays, the other one shrinks by exp(-distance).
    """
    m = tl.maximum(m1, m2)
    d = tl.maximum(d1, d2) + tl.minimum(d1, d2) * tl.exp(-tl.abs(m1 - m2))
    return m, d


@triton.jit
def as_parts(x):
    """Each number as a part of its own. -inf is an empty part: sum 0, and a finite number below all scores."""
    empty = x == -float("inf")
    return tl.where(empty, -1.0e30, x), tl.where(empty, 0.0, 1.0)


@triton.jit
def pairwise_softmax_kernel(
    src_ptr,
    dst_ptr,
    n_cols,
    src_stride,
    dst_stride,
    LANES: tl.constexpr,
):
    """Program i owns row i. Each lane merges its columns one by one, and then tl.reduce merges the lanes."""
    row = tl.program_id(axis=0).to(tl.int64)
    src_ptr += row * src_stride
    dst_ptr += row * dst_stride
    lanes = tl.arange(0, LANES)

    lane_m = tl.full([LANES], -1.0e30, tl.float32)
    lane_d = tl.full([LANES], 0.0, tl.float32)
    for start in range(0, n_cols, LANES):
        cols = start + lanes
        x = tl.load(src_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x_m, x_d = as_parts(x.to(tl.float32))
        lane_m, lane_d = merge(lane_m, lane_d, x_m, x_d)
    m, d = tl.reduce((lane_m, lane_d), 0, merge)

    for start in range(0, n_cols, LANES):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(src_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(dst_ptr + cols, y.to(dst_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    dy_stride,
    y_stride,
    dx_stride,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * dy_stride
    y_ptr += row * y_stride
    dx_ptr += row * dx_stride
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(
            dx_ptr + cols,
            (y * (dy - s)).to(dx_ptr.dtype.element_ty),
            mask=mask,
            eviction_policy="evict_first",
        )


def block_for(n_cols: int, widest: int) -> int:
    """The power of two that covers a row, or the widest block."""
    return min(triton.next_power_of_2(n_cols), widest)


def warps_for(block: int) -> int:
    """One warp for each 512 columns."""
    return max(1, block // 512)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    lanes = block_for(n_cols, FORWARD_LANES)
    pairwise_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), LANES=lanes, num_warps=max(1, lanes // 128)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    n_rows, n_cols = y.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    block = block_for(n_cols, BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps_for(block)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, dy):
        (result,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
