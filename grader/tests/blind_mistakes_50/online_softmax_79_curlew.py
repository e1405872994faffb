# labs/lab2_online_softmax/online_softmax.py | error | In `online_softmax_kernel`, the first loop keeps x and `tops = tl.full([LANES], -float("inf"), x_ptr.dtype.element_ty)` in the dtype of x; x should be converted to fp32 after the load and tops be `tl.float32`. fp32 is right; fp16 does not compile (`tl.exp` takes only fp32 and fp64), nor does bf16 (`tl.maximum` gives fp32, so the loop-carried `tops` changes its type).
"""Online softmax with a maximum and a sum for each lane, joined at the end of a row; gradient and autograd."""

import torch
import triton
import triton.language as tl

LANES_FORWARD = 4096
LANES_BACKWARD = 16384


@triton.jit
def not_below(top):
    """A shift to subtract: the maximum, or 0 where nothing finite was seen."""
    return tl.where(top == -float("inf"), 0.0, top)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    LANES: tl.constexpr,
):
    """y[i, :] for row i = program; lane k looks at columns k, k + LANES, k + 2 * LANES, ..."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, LANES)

    tops = tl.full([LANES], -float("inf"), x_ptr.dtype.element_ty)
    sums = tl.zeros([LANES], dtype=tl.float32)
    for start in range(0, n_cols, LANES):
        cols = start + lanes
        x = tl.load(
            x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        )
        raised = tl.maximum(tops, x)
        shift = not_below(raised)
        sums = sums * tl.exp(tops - shift) + tl.exp(x - shift)
        tops = raised

    m = tl.max(tops.to(tl.float32), axis=0)
    d = tl.sum(sums * tl.exp(tops.to(tl.float32) - m), axis=0)

    for start in range(0, n_cols, LANES):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(
            x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(
            y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    LANES: tl.constexpr,
):
    """dx[i, :] for row i = program: the sum of y * dy in fp32, then y * (dy - sum)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, LANES)

    s = 0.0
    for start in range(0, n_cols, LANES):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    for start in range(0, n_cols, LANES):
        cols = start + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(
            dx_row_ptr + cols,
            dx.to(dx_ptr.dtype.element_ty),
            mask=mask,
            eviction_policy="evict_first",
        )


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous, any row stride."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    lanes = clamp(triton.next_power_of_2(n_cols), 1, LANES_FORWARD)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        LANES=lanes,
        num_warps=clamp(lanes // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    lanes = clamp(triton.next_power_of_2(n_cols), 1, LANES_BACKWARD)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        LANES=lanes,
        num_warps=clamp(lanes // 512, 4, 32),
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
