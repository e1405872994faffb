# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `online_softmax_kernel`, behind the first loop: `total = tl.sum(mass * tl.exp(peak - shift), axis=0)` with `shift = finite(peak)`, the lane's own maximum, so the factor is 1; it should be `tl.exp(peak - top)`. d is too large, and rows sum to less than 1 in all cases but one column and constant rows (or rows whose lanes all have the same maximum).
"""Online softmax with a maximum and a sum for each lane, joined once a row; gradient, autograd function."""

import torch
import triton
import triton.language as tl

LANES = 4096  # a lane has a maximum, a sum and an element: three registers and their temporaries
BACKWARD_BLOCK = 16384


@triton.jit
def finite(peak):
    """A shift for exponents below `peak`: itself, or 0 where nothing but -inf was seen."""
    return tl.where(peak == -float("inf"), 0.0, peak)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, LANES: tl.constexpr):
    """y[i, :] = exp(x[i, :] - top) / total; program i owns row i, and lane k of it columns k, k + LANES, ...

    Only the end of the first sweep reduces over lanes: no warp waits for another one before.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lane = tl.arange(0, LANES)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    peak = tl.full((LANES,), -float("inf"), dtype=tl.float32)  # maximum of the columns of a lane
    mass = tl.zeros((LANES,), dtype=tl.float32)  # sum of their exp(x - peak)
    for start in range(0, n_cols, LANES):
        col = start + lane
        x = tl.load(x_row + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(peak, x)
        shift = finite(higher)
        mass = mass * tl.exp(peak - shift) + tl.exp(x - shift)
        peak = higher

    # From the scale of each lane to that of the row.
    shift = finite(peak)
    top = tl.max(peak, axis=0)
    total = tl.sum(mass * tl.exp(peak - shift), axis=0)

    for start in range(0, n_cols, LANES):
        col = start + lane
        x = tl.load(x_row + col, mask=col < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_row + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s), s = sum y[i, :] * dy[i, :]; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + col, mask=col < n_cols, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_row + col, mask=col < n_cols, other=0.0, eviction_policy="evict_last")
        s += tl.sum(dy.to(tl.float32) * y.to(tl.float32), axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + col, mask=col < n_cols, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_row + col, mask=col < n_cols, other=0.0, eviction_policy="evict_first")
        dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
        tl.store(dx_row + col, dx.to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    lanes = min(triton.next_power_of_2(n_cols), LANES)
    warps = min(max(lanes // 512, 1), 8)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), LANES=lanes, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = min(max(block // 512, 4), 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
