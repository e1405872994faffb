# labs/lab2_online_softmax/online_softmax.py | right | Unusual: a piece of the row is a two-dimensional tile (layers x lanes), each lane keeps its own online maximum and sum over all pieces, and the lanes are merged once at the end of the row; the second sweep runs from the last piece to the first; exp2 with log2(e) after the subtraction; backward keeps a sum for each lane in the same way.
"""Softmax in which every lane keeps a maximum and a sum of its own; lanes meet once, at the end of the row."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
MOST_LANES = 2048
MOST_LAYERS = 4


@triton.jit
def e_to(difference):
    """exp of a difference that is at most 0."""
    return tl.exp2(difference * LOG2E)


@triton.jit
def lanewise_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, LAYERS: tl.constexpr, LANES: tl.constexpr):
    """A piece of the row is LAYERS x LANES, row by row; program i owns row i."""
    PIECE: tl.constexpr = LAYERS * LANES
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    piece = tl.arange(0, LAYERS)[:, None] * LANES + tl.arange(0, LANES)[None, :]

    lane_top = tl.full([LANES], -float("inf"), dtype=tl.float32)
    lane_sum = tl.zeros([LANES], dtype=tl.float32)
    for start in range(0, n_cols, PIECE):
        cols = start + piece
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last").to(tl.float32)
        new_top = tl.maximum(lane_top, tl.max(x, axis=0))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)  # a lane may have seen -inf alone
        lane_sum = lane_sum * e_to(lane_top - shift) + tl.sum(e_to(x - shift[None, :]), axis=0)
        lane_top = new_top

    top = tl.max(lane_top, axis=0)  # finite, as some column of the row is
    share = 1.0 / tl.sum(lane_sum * e_to(lane_top - top), axis=0)

    # From the last piece back to the first: what was read last is the likeliest to be in the cache.
    last = (n_cols - 1) // PIECE * PIECE
    for back in range(0, n_cols, PIECE):
        cols = last - back + piece
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first").to(tl.float32)
        y = e_to(x - top) * share
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


@triton.jit
def lanewise_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, LAYERS: tl.constexpr, LANES: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    PIECE: tl.constexpr = LAYERS * LANES
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    piece = tl.arange(0, LAYERS)[:, None] * LANES + tl.arange(0, LANES)[None, :]

    lane_dot = tl.zeros([LANES], dtype=tl.float32)
    for start in range(0, n_cols, PIECE):
        cols = start + piece
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_last").to(tl.float32)
        lane_dot += tl.sum(y * dy, axis=0)
    dot = tl.sum(lane_dot, axis=0)

    last = (n_cols - 1) // PIECE * PIECE
    for back in range(0, n_cols, PIECE):
        cols = last - back + piece
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - dot)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols, eviction_policy="evict_first")


def piece_of(n_cols: int):
    """Layers and lanes of a piece, powers of two: lanes first, then as many layers as the row fills."""
    lanes = min(max(triton.next_power_of_2(n_cols), 32), MOST_LANES)
    layers = min(triton.next_power_of_2(triton.cdiv(n_cols, lanes)), MOST_LAYERS)
    return layers, lanes


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    layers, lanes = piece_of(n_cols)
    lanewise_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        LAYERS=layers,
        LANES=lanes,
        num_warps=min(max(layers * lanes // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    layers, lanes = piece_of(n_cols)
    lanewise_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        LAYERS=layers,
        LANES=lanes,
        num_warps=min(max(layers * lanes // 512, 4), 16),
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
