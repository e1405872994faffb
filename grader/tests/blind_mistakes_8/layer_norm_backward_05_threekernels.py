# labs/lab4_production_slice/layer_norm_backward.py | corner | LayerNorm.backward passes the constant 1e-5 as eps and not ctx.eps, so gradients of layer_norm belong to another eps than the result. Shows only for an eps far from 1e-5, such as 0.5.
"""Gradients of LayerNorm: statistics, then dx by rows, then the weight and the bias by columns."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import block_of, on
from torch.library import triton_op

TILE_ROWS, TILE_COLS = tl.constexpr(8), tl.constexpr(64)


@triton.jit
def statistics(x_ptr, mean_ptr, rstd_ptr, n_cols, stride_x, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, n_cols, BLOCK):
        acc += tl.load(x_ptr + row * stride_x + at + lane, mask=at + lane < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(acc, 0) / n_cols
    acc = tl.zeros((BLOCK,), tl.float32)
    for at in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + at + lane, mask=at + lane < n_cols, other=0.0).to(tl.float32)
        d = tl.where(at + lane < n_cols, x - mean, 0.0)
        acc += d * d
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, 1.0 / tl.sqrt(tl.sum(acc, 0) / n_cols + tl.cast(eps, tl.float32)))


@triton.jit
def normal_and_g(x_row, dy_row, weight_ptr, mean, rstd, cols, n_cols):
    """The normalised numbers and dy * weight at these columns, 0 past the end."""
    ok = cols < n_cols
    x = tl.load(x_row + cols, mask=ok, other=0.0).to(tl.float32)
    dy = tl.load(dy_row + cols, mask=ok, other=0.0).to(tl.float32)
    w = tl.load(weight_ptr + cols, mask=ok, other=0.0).to(tl.float32)
    return (x - mean) * rstd, dy * w


@triton.jit
def input_gradient(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, n_cols, stride_dy, stride_x, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    dx_row = dx_ptr + row * stride_dx
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    a = 0.0
    b = 0.0
    for at in range(0, n_cols, BLOCK):
        n, g = normal_and_g(x_row, dy_row, weight_ptr, mean, rstd, at + tl.arange(0, BLOCK), n_cols)
        a += tl.sum(g, 0)
        b += tl.sum(g * n, 0)
    a /= n_cols
    b /= n_cols
    for at in range(0, n_cols, BLOCK):
        cols = at + tl.arange(0, BLOCK)
        n, g = normal_and_g(x_row, dy_row, weight_ptr, mean, rstd, cols, n_cols)
        tl.store(dx_row + cols, (rstd * (g - a - n * b)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def parameter_gradients(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr, n_rows, n_cols, stride_dy, stride_x
):
    """One program owns TILE_COLS columns and goes down all rows, so no sums have to be added up later."""
    cols = tl.program_id(0) * TILE_COLS + tl.arange(0, TILE_COLS)
    r = tl.arange(0, TILE_ROWS).to(tl.int64)
    dw = tl.zeros((TILE_ROWS, TILE_COLS), tl.float32)
    db = tl.zeros((TILE_ROWS, TILE_COLS), tl.float32)
    for step in range(tl.cdiv(n_rows, TILE_ROWS)):
        ok = (r[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + r[:, None] * stride_x + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + r[:, None] * stride_dy + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + r, mask=r < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + r, mask=r < n_rows, other=0.0)
        dw += dy * ((x - mean[:, None]) * rstd[:, None])
        db += dy
        r += TILE_ROWS
    tl.store(dweight_ptr + cols, tl.sum(dw, 0).to(dweight_ptr.dtype.element_ty), mask=cols < n_cols)
    tl.store(dbias_ptr + cols, tl.sum(db, 0).to(dbias_ptr.dtype.element_ty), mask=cols < n_cols)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients for x, weight and bias."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), 2048)
    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    on(statistics, x)[(n_rows,)](x, mean, rstd, n_cols, x.stride(0), eps, BLOCK=block)
    on(input_gradient, x)[(n_rows,)](
        dy, x, weight, mean, rstd, dx, n_cols, dy.stride(0), x.stride(0), dx.stride(0), BLOCK=block
    )
    on(parameter_gradients, x)[(triton.cdiv(n_cols, TILE_COLS),)](
        dy, x, mean, rstd, dweight, dbias, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, 1e-5)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
