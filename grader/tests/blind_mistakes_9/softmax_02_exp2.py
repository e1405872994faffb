# labs/lab4_production_slice/softmax.py | corner | x is multiplied by log2(e) before the maximum is subtracted (`scaled_tile`): the product is rounded at the size of x, so exp2 of the difference has a relative error of about |x| * 1e-7; it must be exp2((x - top) * LOG2E). Shows in fp32 for values some tens or more from 0 (shifted rows, 1e4, 1e28; on a GPU the fma of product and subtraction makes it inf or NaN near 1e28), not for rows near 0 and hardly in 16 bits
"""Softmax with exp2, several short rows in one program."""

import torch
import triton
import triton.language as tl
from rows import on
from torch.library import triton_op

LOG2E = tl.constexpr(1.4426950408889634)
BOTTOM = tl.constexpr(-3.4028234663852886e38)
TILE = 8192  # numbers that a program has in registers


def shape_of_tile(n_cols):
    """Rows and columns of a program's tile."""
    width = min(triton.next_power_of_2(n_cols), TILE)
    return min(16, TILE // width), width


@triton.jit
def scaled_tile(base, rows, stride, cols, n_rows, n_cols):
    """x in units of log 2, so that exp2, the instruction of the GPU, needs no further factor."""
    inside = (rows < n_rows) & (cols < n_cols)
    x = tl.load(base + rows * stride + cols, mask=inside, other=-float("inf")).to(tl.float32)
    return x * LOG2E


@triton.jit
def softmax_tiles(
    x_ptr, y_ptr, n_rows, stride_x, stride_y, N: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr
):
    rows = (tl.program_id(0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT))[:, None]
    lanes = tl.arange(0, WIDTH)[None, :]
    top = tl.full((HEIGHT, 1), BOTTOM, dtype=tl.float32)
    total = tl.zeros((HEIGHT, 1), dtype=tl.float32)
    for k in range(0, N, WIDTH):
        x = scaled_tile(x_ptr, rows, stride_x, k + lanes, n_rows, N)
        new_top = tl.maximum(top, tl.max(x, axis=1)[:, None])
        total = total * tl.exp2(top - new_top) + tl.sum(tl.exp2(x - new_top), axis=1)[:, None]
        top = new_top
    # a row past the end has a sum of 0: it is not stored, but should not divide by 0 either
    inverse = 1.0 / tl.where(rows < n_rows, total, 1.0)
    for k in range(0, N, WIDTH):
        x = scaled_tile(x_ptr, rows, stride_x, k + lanes, n_rows, N)
        y = tl.exp2(x - top) * inverse
        inside = (rows < n_rows) & (k + lanes < N)
        tl.store(y_ptr + rows * stride_y + k + lanes, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def tile32(base, rows, stride, cols, n_rows, n_cols):
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(base + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def softmax_tiles_backward(
    dy_ptr, y_ptr, dx_ptr, n_rows, stride_dy, stride_y, stride_dx,
    N: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT))[:, None]
    lanes = tl.arange(0, WIDTH)[None, :]
    inner = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for k in range(0, N, WIDTH):
        dy = tile32(dy_ptr, rows, stride_dy, k + lanes, n_rows, N)
        inner += dy * tile32(y_ptr, rows, stride_y, k + lanes, n_rows, N)
    s = tl.sum(inner, axis=1)[:, None]
    for k in range(0, N, WIDTH):
        dy = tile32(dy_ptr, rows, stride_dy, k + lanes, n_rows, N)
        y = tile32(y_ptr, rows, stride_y, k + lanes, n_rows, N)
        inside = (rows < n_rows) & (k + lanes < N)
        dx = (dy - s) * y
        tl.store(dx_ptr + rows * stride_dx + k + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    height, width = shape_of_tile(n_cols)
    on(softmax_tiles, x)[(triton.cdiv(n_rows, height),)](
        x, out, n_rows, x.stride(0), out.stride(0), N=n_cols, HEIGHT=height, WIDTH=width, num_warps=8
    )
    return out


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = y.shape
    height, width = shape_of_tile(n_cols)
    on(softmax_tiles_backward, dy)[(triton.cdiv(n_rows, height),)](
        dy, y, out, n_rows, dy.stride(0), y.stride(0), out.stride(0),
        N=n_cols, HEIGHT=height, WIDTH=width, num_warps=8,
    )  # fmt: skip
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = forward_op(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return backward_op(grad.contiguous(), *ctx.saved_tensors)


def fused_softmax(x) -> torch.Tensor:
    return FusedSoftmax.apply(x)
