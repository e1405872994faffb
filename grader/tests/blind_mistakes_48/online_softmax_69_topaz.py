# labs/lab2_online_softmax/online_softmax.py | right | One program a row, but the row is folded into a tile of 8 lines, each with an online maximum and sum of its own, merged once behind the last tile; in the backward pass sums of lines are added at the end.
"""Softmax and its gradient of rows that are folded into several lines, each with a maximum and a sum of its own."""

import torch
import triton
import triton.language as tl

LINES = 8  # of a tile
WIDEST = 512  # columns in a line of a tile


@triton.jit
def places(LINES: tl.constexpr, WIDTH: tl.constexpr):
    """The first LINES * WIDTH columns of a row, line by line."""
    return tl.arange(0, LINES)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def forward_lines(x_ptr, y_ptr, n_cols, stride_x, stride_y, LINES: tl.constexpr, WIDTH: tl.constexpr):
    """Program i owns row i. The lines keep their own m and d, which are merged behind the last tile."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    tile = places(LINES, WIDTH)
    m = tl.full((LINES,), -float("inf"), tl.float32)
    d = tl.zeros((LINES,), tl.float32)
    for start in range(0, n_cols, LINES * WIDTH):
        cols = start + tile
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=1))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift[:, None]), axis=1)
        m = m_new
    # A line without a finite value has m = -inf and d = 0; the row has a finite one.
    top = tl.max(m, axis=0)
    total = tl.sum(d * tl.exp(m - top), axis=0)
    for start in range(0, n_cols, LINES * WIDTH):
        cols = start + tile
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_lines(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    LINES: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """dx = y * (dy - s) of row i; s is the sum over the lines of the sums of y * dy in each line."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    tile = places(LINES, WIDTH)
    line_sums = tl.zeros((LINES,), tl.float32)
    for start in range(0, n_cols, LINES * WIDTH):
        cols = start + tile
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
        line_sums += tl.sum(y * dy, axis=1)
    s = tl.sum(line_sums, axis=0)
    for start in range(0, n_cols, LINES * WIDTH):
        cols = start + tile
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def width_of(n_cols: int) -> int:
    """Columns of a line, so that one tile holds a row of n_cols columns, if it is not too long."""
    return min(triton.next_power_of_2(triton.cdiv(n_cols, LINES)), WIDEST)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    y = x.new_empty(x.shape) if out is None else out
    n_rows, n_cols = x.shape
    forward_lines[(n_rows,)](
        x, y, n_cols, x.stride(0), y.stride(0), LINES=LINES, WIDTH=width_of(n_cols), num_warps=4
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    dx = dy.new_empty(dy.shape) if out is None else out
    n_rows, n_cols = dy.shape
    backward_lines[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        LINES=LINES,
        WIDTH=width_of(n_cols),
        num_warps=8,
    )
    return dx


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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
