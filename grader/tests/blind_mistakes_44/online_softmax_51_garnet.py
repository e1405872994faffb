# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | `backward_kernel`, used by softmax_backward and softmax: `s = tl.sum(products, axis=0)` adds the GROUPS x WIDTH tile along one axis only, and `dy - s[None, :]` then subtracts another partial sum in each of the WIDTH columns. It should be the sum of the whole tile, `tl.sum(tl.sum(products, axis=1), axis=0)`. dx is wrong in all cases with more than one column.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function.

A block of columns is folded into a tile of GROUPS x WIDTH numbers, the columns running along the second axis.
"""

import torch
import triton
import triton.language as tl

WIDTH = 128  # columns beside each other in a tile
MOST_GROUPS = 64  # 8192 columns in a tile


@triton.jit
def tile_of(start, GROUPS: tl.constexpr, WIDTH: tl.constexpr):
    """Numbers of the columns of the tile that begins at column `start`."""
    return start + tl.arange(0, GROUPS)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]


@triton.jit
def forward_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, GROUPS: tl.constexpr, WIDTH: tl.constexpr
):
    """y = exp(x - m) / d for row i of x, where i is the number of the program."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, GROUPS * WIDTH):
        cols = tile_of(start, GROUPS, WIDTH)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(tl.max(x, axis=1), axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.sum(tl.exp(x - shift), axis=1), axis=0)
        m = m_new
    for start in range(0, n_cols, GROUPS * WIDTH):
        cols = tile_of(start, GROUPS, WIDTH)
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """dx = y * (dy - s) for row i, with s the sum of y * dy; products are gathered in a tile, then added up."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    products = tl.zeros((GROUPS, WIDTH), dtype=tl.float32)
    for start in range(0, n_cols, GROUPS * WIDTH):
        cols = tile_of(start, GROUPS, WIDTH)
        inside = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        y = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_last")
        products += dy.to(tl.float32) * y.to(tl.float32)
    s = tl.sum(products, axis=0)
    for start in range(0, n_cols, GROUPS * WIDTH):
        cols = tile_of(start, GROUPS, WIDTH)
        inside = cols < n_cols
        dy = tl.load(dy_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        y = tl.load(y_ptr + cols, mask=inside, other=0.0, eviction_policy="evict_first").to(tl.float32)
        dx = y * (dy - s[None, :])
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def tile_for(n_cols: int):
    """Groups, width and warps for rows of n_cols columns."""
    block = triton.next_power_of_2(n_cols)
    width = min(block, WIDTH)
    groups = min(block // width, MOST_GROUPS)
    return groups, width, min(max(groups // 4, 1), 16)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x, (n_rows, n_cols), columns contiguous and rows any number of elements apart."""
    n_rows, n_cols = x.shape
    y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device) if out is None else out
    groups, width, warps = tile_for(n_cols)
    forward_kernel[(n_rows,)](
        x, y, n_cols, x.stride(0), y.stride(0), GROUPS=groups, WIDTH=width, num_warps=min(warps, 8)
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and the result y."""
    n_rows, n_cols = dy.shape
    dx = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device) if out is None else out
    groups, width, warps = tile_for(n_cols)
    backward_kernel[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        GROUPS=groups,
        WIDTH=width,
        num_warps=warps,
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """Softmax with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Compute y and keep it."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Gradient of x."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
