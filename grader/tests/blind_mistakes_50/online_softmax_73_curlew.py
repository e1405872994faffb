# labs/lab2_online_softmax/online_softmax.py | corner | In `online_softmax_kernel`, `lse = m + tl.log(...)` followed by `tl.exp(x - lse)` (both paths): in fp32, log(d) loses its digits beside a large m; it should be `tl.exp(x - m) / d` (or `exp((x - m) - log(d))`). Right for ordinary values; wrong for rows far from 0, above or below (offset 16384, "huge" with ties at the maximum, "far below", "lowest", values to 1e28), where rows do not sum to 1.
"""Online softmax by way of the logarithm of the sum of exponentials, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.heuristics({"ONE_BLOCK": lambda args: args["n_cols"] <= args["BLOCK"]})
@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):
    """y = exp(x - lse), lse = log of the sum of exp(x) over the row. A row of one block is read once."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    cols = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        mask = cols < n_cols
        x = tl.load(x_row + cols, mask=mask, other=-float("inf")).to(tl.float32)
        m = tl.max(x, axis=0)
        lse = m + tl.log(tl.sum(tl.exp(x - m), axis=0))
        tl.store(y_row + cols, tl.exp(x - lse).to(y_ptr.dtype.element_ty), mask=mask)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = tl.load(
                x_row + start + cols,
                mask=start + cols < n_cols,
                other=-float("inf"),
                eviction_policy="evict_last",
            ).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        lse = m + tl.log(d)
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            x = tl.load(
                x_row + start + cols,
                mask=mask,
                other=-float("inf"),
                eviction_policy="evict_first",
            ).to(tl.float32)
            y = tl.exp(x - lse)
            tl.store(
                y_row + start + cols,
                y.to(y_ptr.dtype.element_ty),
                mask=mask,
                eviction_policy="evict_first",
            )


@triton.heuristics({"ONE_BLOCK": lambda args: args["n_cols"] <= args["BLOCK"]})
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
    ONE_BLOCK: tl.constexpr,
):
    """dx = y * (dy - s), s the sum of y * dy. A row of one block is read once."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    cols = tl.arange(0, BLOCK)
    if ONE_BLOCK:
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            dy = tl.load(dy_row + start + cols, mask=mask, other=0.0, eviction_policy="evict_last")
            y = tl.load(y_row + start + cols, mask=mask, other=0.0, eviction_policy="evict_last")
            s += tl.sum(y.to(tl.float32) * dy.to(tl.float32), axis=0)
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            dy = tl.load(dy_row + start + cols, mask=mask, other=0.0, eviction_policy="evict_first")
            y = tl.load(y_row + start + cols, mask=mask, other=0.0, eviction_policy="evict_first")
            dx = y.to(tl.float32) * (dy.to(tl.float32) - s)
            tl.store(
                dx_row + start + cols,
                dx.to(dx_ptr.dtype.element_ty),
                mask=mask,
                eviction_policy="evict_first",
            )


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, one program for each row."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8 if block >= 16384 else clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, one program for each row."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
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
