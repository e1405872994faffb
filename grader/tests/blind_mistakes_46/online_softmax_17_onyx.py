# labs/lab2_online_softmax/online_softmax.py | error | `OnlineSoftmax.forward(ctx, x, width)` has two arguments after ctx, but `backward` ends with `return dx`; it should be `return dx, None`. Autograd raises that the function returned an incorrect number of gradients (expected 2, got 1) in every backward pass of `softmax`; the forward passes and `softmax_backward` are right.
"""Online softmax with a custom reduction over pairs of maximum and sum, its gradient, and both for autograd."""

import torch
import triton
import triton.language as tl

WIDTH = 512


@triton.jit
def join_pairs(m_a, d_a, m_b, d_b):
    """The pair of maximum and sum for two parts of a row, from the pairs of the parts."""
    m = tl.maximum(m_a, m_b)
    shift = tl.where(m == -float("inf"), 0.0, m)
    return m, d_a * tl.exp(m_a - shift) + d_b * tl.exp(m_b - shift)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, WIDTH)
    m = tl.full((WIDTH,), -float("inf"), tl.float32)
    d = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, n_cols, WIDTH):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m, d = join_pairs(m, d, x, tl.full((WIDTH,), 1.0, tl.float32))
    row_m, row_d = tl.reduce((m, d), 0, join_pairs)
    for start in range(0, n_cols, WIDTH):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - row_m) / row_d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, WIDTH)
    products = tl.zeros((WIDTH,), tl.float32)
    for start in range(0, n_cols, WIDTH):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        products = tl.fma(dy, y, products)
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, WIDTH):
        cols = start + lanes
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def launch_forward(x: torch.Tensor, out: torch.Tensor, width: int):
    """out = softmax(x), in blocks of `width` columns."""
    n_rows, n_cols = x.shape
    forward_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), WIDTH=width, num_warps=2
    )


def launch_backward(dy: torch.Tensor, y: torch.Tensor, out: torch.Tensor, width: int):
    """out = the gradient, in blocks of `width` columns."""
    n_rows, n_cols = dy.shape
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        WIDTH=width,
        num_warps=4,
    )


def width_for(x: torch.Tensor) -> int:
    """The next power of two of the columns of x, at most WIDTH."""
    return min(triton.next_power_of_2(x.shape[1]), WIDTH)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    launch_forward(x, out, width_for(x))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    launch_backward(dy, y, out, width_for(dy))
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax and its gradient, which use blocks of the same width."""

    @staticmethod
    def forward(ctx, x, width):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        launch_forward(x, y, width)
        ctx.save_for_backward(y)
        ctx.width = width
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
        launch_backward(dy.contiguous(), y, dx, ctx.width)
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x, width_for(x))
