# labs/lab2_online_softmax/online_softmax.py | error | In `folded_softmax_kernel`, `peaks = tl.full([LANES], -float("inf"), x_ptr.dtype.element_ty)` has the dtype of x, but becomes fp32 in the loop (`peaks = new_peaks`), so Triton does not compile it for fp16 and bf16 (a loop-carried variable changes its type): it should be `tl.float32`. fp32 is right, and so is fp16 in the interpreter, which does not check types.
"""Softmax over rows of any length, a row folded into tiles of DEPTH x LANES: each lane has a maximum and a sum."""

import torch
import triton
import triton.language as tl

LANES = 512
DEPTH = 8
BACKWARD_DEPTH = 8

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def folded(DEPTH: tl.constexpr, LANES: tl.constexpr):
    """The columns of a tile from 0 on: LANES neighbours in a line, and DEPTH lines."""
    return tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]


@triton.jit
def finite(m):
    """m, or 0 where m is -inf: terms of such a lane are 0 with any finite shift."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def folded_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    tile = folded(DEPTH, LANES)

    peaks = tl.full([LANES], -float("inf"), x_ptr.dtype.element_ty)
    sums = tl.full([LANES], 0.0, tl.float32)
    for start in range(0, n_cols, DEPTH * LANES):
        cols = start + tile
        x = tl.load(
            x_row_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        new_peaks = tl.maximum(peaks, tl.max(x, axis=0))
        shift = finite(new_peaks)
        terms = tl.exp2((x - shift[None, :]) * LOG2E)
        sums = sums * tl.exp2((peaks - shift) * LOG2E) + tl.sum(terms, axis=0)
        peaks = new_peaks

    peak = tl.max(peaks, axis=0)
    total = tl.sum(sums * tl.exp2((peaks - peak) * LOG2E), axis=0)

    for start in range(0, n_cols, DEPTH * LANES):
        cols = start + tile
        mask = cols < n_cols
        x = tl.load(
            x_row_ptr + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp2((x - peak) * LOG2E) / total
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def folded_gradient_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    tile = folded(DEPTH, LANES)

    sums = tl.full([LANES], 0.0, tl.float32)
    for start in range(0, n_cols, DEPTH * LANES):
        cols = start + tile
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        sums += tl.sum(dy * y, axis=0)
    s = tl.sum(sums, axis=0)

    for start in range(0, n_cols, DEPTH * LANES):
        cols = start + tile
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")


def tile_of(n_cols: int, deepest: int):
    """Depth and lanes of a tile: powers of two, together no more than the next one above n_cols."""
    width = triton.next_power_of_2(n_cols)
    lanes = min(width, LANES)
    return min(width // lanes, deepest), lanes


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    depth, lanes = tile_of(n_cols, DEPTH)
    folded_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), DEPTH=depth, LANES=lanes, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    depth, lanes = tile_of(n_cols, BACKWARD_DEPTH)
    folded_gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        DEPTH=depth,
        LANES=lanes,
        num_warps=8,
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
