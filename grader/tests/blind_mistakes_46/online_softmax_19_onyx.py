# labs/lab2_online_softmax/online_softmax.py | right | Nothing is wrong. The forward keeps a pair (maximum, sum) for each lane and joins them by `tl.reduce` over a tuple with its own combine function; the gradient runs persistent programs over two-dimensional tiles in an int64 `while` loop and sums with `tl.reduce` and an own `plus`.
"""Softmax whose recurrence is a tl.reduce over pairs, and a gradient on persistent tiles of several rows."""

import torch
import triton
import triton.language as tl

FORWARD_WIDTH = 512
TILE = 4096  # elements of a tile of the gradient
PROGRAMS = 1056  # eight for each multiprocessor of an H200


@triton.jit
def both(m_left, d_left, m_right, d_right):
    """Join two partial results (m, d), where d is a sum of exp(x - m)."""
    m = tl.maximum(m_left, m_right)
    base = tl.where(m == -float("inf"), 0.0, m)
    return m, d_left * tl.exp(m_left - base) + d_right * tl.exp(m_right - base)


@triton.jit
def softmax_pairs_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, WIDTH: tl.constexpr):
    """A lane collects a pair over all blocks of the row; the lanes are reduced in pairs."""
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    ones = tl.full((WIDTH,), 1.0, tl.float32)
    m = tl.full((WIDTH,), -float("inf"), tl.float32)
    d = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m, d = both(m, d, x, ones)
    m_row, d_row = tl.reduce((m, d), axis=0, combine_fn=both)
    for start in range(0, n_cols, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m_row) / d_row
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def gradient_tiles_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Program p owns the bands p, p + programs, and so on, of HEIGHT rows each."""
    lanes = tl.arange(0, WIDTH)[None, :]
    top = tl.program_id(0).to(tl.int64) * HEIGHT
    while top < n_rows:
        rows = top + tl.arange(0, HEIGHT)[:, None]
        dy_rows = dy_ptr + rows * stride_dy
        y_rows = y_ptr + rows * stride_y
        dx_rows = dx_ptr + rows * stride_dx
        products = tl.zeros((HEIGHT, WIDTH), tl.float32)
        for start in range(0, n_cols, WIDTH):
            cols = start + lanes
            mask = (rows < n_rows) & (cols < n_cols)
            dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
            products += dy * y
        s = tl.reduce(products, axis=1, combine_fn=plus)[:, None]
        for start in range(0, n_cols, WIDTH):
            cols = start + lanes
            mask = (rows < n_rows) & (cols < n_cols)
            dy = tl.load(dy_rows + cols, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_rows + cols, mask=mask, other=0.0).to(tl.float32)
            tl.store(dx_rows + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)
        top += tl.num_programs(0) * HEIGHT


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), FORWARD_WIDTH)
    softmax_pairs_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), WIDTH=width, num_warps=2
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    width = min(triton.next_power_of_2(n_cols), TILE)
    height = min(TILE // width, 16)
    gradient_tiles_kernel[(min(triton.cdiv(n_rows, height), PROGRAMS),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        HEIGHT=height,
        WIDTH=width,
        num_warps=8 if height * width > 1024 else 4,
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
