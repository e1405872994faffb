# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def average(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    return tl.sum(total, axis=0) / N_COLS


@triton.jit
def upstream(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """Return the gradient for the normalised row at some columns, 0 past the end."""
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.jit
def centred(x_row, mean, cols, N_COLS: tl.constexpr):
    """Return x - mean at some columns: past the end the row is taken to equal its mean."""
    here = tl.load(x_row + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
    return tl.where(cols < N_COLS, here, mean) - mean


@triton.jit
def tile_of(matrix_ptr, rows, cols, stride, n_rows, n_cols):
    """Return a tile in fp32, 0 outside of the matrix."""
    where = matrix_ptr + rows[:, None] * stride + cols[None, :]
    inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
    return tl.load(where, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - (sum(g) + n * sum(g * n)) / N_COLS), where g = dy * weight; program i computes row i.

    n is the normalised row, (x - mean) * rstd. Mean and rstd of row i go to element i of two fp32 vectors.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    mean = average(x_row, N_COLS, BLOCK)
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = centred(x_row, mean, cols, N_COLS)
        g = upstream(dy_row, weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    # A row of dx is g less its part along the constant row and its part along n.
    along_one = sum_g / N_COLS
    along_n = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = centred(x_row, mean, cols, N_COLS) * rstd
        rest = upstream(dy_row, weight_ptr, cols, N_COLS) - along_one
        store(dx_ptr + row * stride_dx, cols, N_COLS, (rest - along_n * n) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of the two matrices
    in sums, (2, groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        mean = load(mean_ptr, rows, n_rows)
        rstd = load(rstd_ptr, rows, n_rows)
        dy = tile_of(dy_ptr, rows, cols, stride_dy, n_rows, n_cols)
        x = tile_of(x_ptr, rows, cols, stride_x, n_rows, n_cols)
        dweight += (x - mean[:, None]) * rstd[:, None] * dy
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    read = dy.stride(0), x.stride(0)
    widths = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(dx_kernel, x)[(n_rows,)](dy, x, weight, dx, mean, rstd, *read, dx.stride(0), eps, **widths)
    grid = triton.cdiv(n_cols, COLS), sums.shape[1]
    on(weight_gradient_kernel, x)[grid](dy, x, mean, rstd, sums, n_rows, n_cols, *read)
    for terms, result in ((sums[0], dweight), (sums[1], dbias)):
        column_sums(terms, result)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator that torch.compile can look into."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Return y for x."""
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        dx, dweight, dbias = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
