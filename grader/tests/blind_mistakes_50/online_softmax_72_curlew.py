# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `online_softmax_kernel`, `shift = tl.where(m == -float("inf"), 0.0, m)` takes the maximum before this block (0 in the first one) instead of `m_new`, so that `d` is not relative to the new `m` when y is computed as `exp(x - m) / d`. Every row is off by exp(-m) or so (also one of a single block or column), and far from 0 it overflows or vanishes; right only where the maximum is 0.
"""Online softmax with programs that walk over several rows, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 16384
PROGRAMS = 132 * 16  # enough for every multiprocessor of an H200; each takes rows in turn


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program p computes rows p, p + P, p + 2 P, ... with P the number of programs."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        x_row_ptr = x_ptr + row * stride_x
        y_row_ptr = y_ptr + row * stride_y
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            x = tl.load(
                x_row_ptr + cols,
                mask=cols < n_cols,
                other=-float("inf"),
                eviction_policy="evict_last",
            ).to(tl.float32)
            # -inf - (-inf) is NaN: any finite shift will do while nothing finite was seen.
            shift = tl.where(m == -float("inf"), 0.0, m)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            x = tl.load(
                x_row_ptr + cols,
                mask=mask,
                other=-float("inf"),
                eviction_policy="evict_first",
            ).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(
                y_row_ptr + cols,
                y.to(y_ptr.dtype.element_ty),
                mask=mask,
                eviction_policy="evict_first",
            )
        row += tl.num_programs(axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """The same walk over rows: s = sum of y * dy, then dx = y * (dy - s)."""
    lanes = tl.arange(0, BLOCK)
    row = tl.program_id(axis=0).to(tl.int64)
    while row < n_rows:
        dy_row_ptr = dy_ptr + row * stride_dy
        y_row_ptr = y_ptr + row * stride_y
        dx_row_ptr = dx_ptr + row * stride_dx
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + lanes
            mask = cols < n_cols
            dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
            y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last")
            s += tl.sum(y.to(tl.float32) * dy.to(tl.float32), axis=0)
        for start in range(0, n_cols, BLOCK):
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
        row += tl.num_programs(axis=0)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    online_softmax_kernel[(min(n_rows, PROGRAMS),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
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
        num_warps=min(max(block // 512, 4), 32),
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
