# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. Unusual: a row is laid out as tiles of DEPTH x 128 with a maximum and a sum for each of 128 lanes; one associative function `join` merges tiles in the loop and lanes in `tl.reduce((m, d), 0, join)`.
"""Softmax whose statistics are joined by one function, over blocks and over lanes; gradient; autograd."""

import torch
import triton
import triton.language as tl

LANES = 128  # columns side by side, each with a maximum and a sum of its own
FORWARD_TILE = 8192
BACKWARD_TILE = 8192


@triton.jit
def without_inf(m):
    """A finite shift for a maximum that may still be -inf."""
    return tl.where(m == -float("inf"), 0.0, m)


@triton.jit
def join(m_a, d_a, m_b, d_b):
    """(m, d) of two sets of columns together: an associative operation, whose identity is (-inf, 0)."""
    m = tl.maximum(m_a, m_b)
    shift = without_inf(m)
    return m, d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One row in tiles of DEPTH x WIDTH, filled line by line with DEPTH * WIDTH columns of the row."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    place = tl.arange(0, DEPTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]

    m = tl.full([WIDTH], -float("inf"), tl.float32)
    d = tl.zeros([WIDTH], tl.float32)
    for start in range(0, n_cols, DEPTH * WIDTH):
        cols = start + place
        x = tl.load(
            x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last"
        ).to(tl.float32)
        m_tile = tl.max(x, axis=0)
        d_tile = tl.sum(tl.exp(x - without_inf(m_tile)[None, :]), axis=0)
        m, d = join(m, d, m_tile, d_tile)

    m_row, d_row = tl.reduce((m, d), 0, join)

    for start in range(0, n_cols, DEPTH * WIDTH):
        cols = start + place
        mask = cols < n_cols
        x = tl.load(
            x_row + cols, mask=mask, other=-float("inf"), eviction_policy="evict_first"
        ).to(tl.float32)
        y = tl.exp(x - m_row) / d_row
        tl.store(
            y_row + cols, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
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
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The same tiles: partial sums of y * dy for each lane, their sum, and dx = y * (dy - sum)."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    place = tl.arange(0, DEPTH)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]

    partial = tl.zeros([WIDTH], tl.float32)
    for start in range(0, n_cols, DEPTH * WIDTH):
        cols = start + place
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        partial += tl.sum(dy * y, axis=0)
    s = tl.sum(partial, axis=0)

    for start in range(0, n_cols, DEPTH * WIDTH):
        cols = start + place
        mask = cols < n_cols
        dy = tl.load(dy_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s)
        tl.store(
            dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


def tile_of(n_cols: int, most: int):
    """Lines and columns of a tile for rows of n_cols, both powers of two."""
    columns = min(triton.next_power_of_2(n_cols), most)
    width = min(columns, LANES)
    return columns // width, width


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, one program for each row."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    depth, width = tile_of(n_cols, FORWARD_TILE)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        DEPTH=depth,
        WIDTH=width,
        num_warps=min(max(depth * width // 1024, 1), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, one program for each row."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    depth, width = tile_of(n_cols, BACKWARD_TILE)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        DEPTH=depth,
        WIDTH=width,
        num_warps=min(max(depth * width // 512, 1), 16),
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
