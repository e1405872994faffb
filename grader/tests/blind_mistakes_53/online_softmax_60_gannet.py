# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `softmax_tiles_kernel` `log_total = tl.log(total)` is the natural logarithm, but it is subtracted in the exponent of a power of two, `tl.exp2((x - top) * LOG2E - log_total)`; it should be `tl.log2(total)`. Each row is multiplied by 2^-ln(d) instead of 1/d (it sums to d^0.307), so it shows in all cases but those with d = 1 (one column, a single dominating value).
"""Softmax over rows, several narrow rows or one piece of a long row in a tile, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
TILE = 8192  # elements of a tile of the forward pass
MOST_ROWS = 16
BACKWARD_BLOCK = 8192


@triton.jit
def weight(x, shift):
    """exp(x - shift); the difference is taken first, so that large x keep their digits."""
    return tl.exp2((x - shift) * LOG2E)


@triton.jit
def softmax_tiles_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program i owns the rows from i * ROWS on; each row of the tile has a maximum and a sum of its own."""
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = (rows < n_rows)[:, None]
    x_rows = x_ptr + rows[:, None] * stride_x
    y_rows = y_ptr + rows[:, None] * stride_y
    lanes = tl.arange(0, COLS)[None, :]

    top = tl.full([ROWS, 1], -float("inf"), tl.float32)
    total = tl.zeros([ROWS, 1], tl.float32)
    for first in range(0, n_cols, COLS):
        cols = first + lanes
        keep = live & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=keep, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        higher = tl.maximum(top, tl.max(x, axis=1, keep_dims=True))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * weight(top, shift) + tl.sum(weight(x, shift), axis=1, keep_dims=True)
        top = higher

    # To divide by the total is to subtract its logarithm from the exponent: no division for each element.
    log_total = tl.log(total)
    for first in range(0, n_cols, COLS):
        cols = first + lanes
        keep = live & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=keep, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        y = tl.exp2((x - top) * LOG2E - log_total)
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=keep, eviction_policy="evict_first")


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
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    dot = 0.0
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row + cols, mask=keep, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=keep, other=0.0, eviction_policy="evict_last").to(tl.float32)
        dot += tl.sum(y * dy, axis=0)
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        keep = cols < n_cols
        dy = tl.load(dy_row + cols, mask=keep, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=keep, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=keep, eviction_policy="evict_first")


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), TILE)
    height = min(TILE // width, MOST_ROWS)
    softmax_tiles_kernel[(triton.cdiv(n_rows, height),)](
        x,
        out,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        ROWS=height,
        COLS=width,
        num_warps=min(max(height * width // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        num_warps=min(max(block // 512, 4), 16),
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
