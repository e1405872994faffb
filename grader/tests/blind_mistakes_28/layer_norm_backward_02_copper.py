# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) dx_kernel, last loop: `(sum_g + n * sum_gd) / N_COLS` takes sum_gd = sum(g * (x - mean)) for sum(g * n) and so lacks a factor rstd; dx is wrong wherever rstd is not 1, that is nearly everywhere; should be `n * (rstd * sum_gd)`. (2) LayerNorm.backward hands on `dy.reshape(x.shape)`, which is a view with the strides of dy and no copy: the kernels, which take contiguous columns, read wrong elements (or outside) in layer_norm where dy is transposed, expanded or every second column, also for dweight and dbias; should be `dy.contiguous()`.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def weighted(dy_row, weight_ptr, cols, n_cols):
    """g = dy * weight at some columns, 0 past the end."""
    return load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)


@triton.jit
def tile_of(ptr, rows, cols, stride, inside):
    """A tile of a matrix in fp32, 0 where it has no such element."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


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
    dx_row = dx_ptr + row * stride_dx

    # Sums are kept lane by lane, and reduced once behind each loop.
    acc_x = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        acc_x += load(x_row, first + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(acc_x) / N_COLS

    acc_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_g = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        g = weighted(dy_row, weight_ptr, cols, N_COLS)
        d = load(x_row, cols, N_COLS) - mean
        d = tl.where(cols < N_COLS, d, 0.0)
        acc_dd += d * d
        acc_g += g
        acc_gd += g * d
    squares = tl.sum(acc_dd)
    sum_g = tl.sum(acc_g)
    sum_gd = tl.sum(acc_gd)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        g = weighted(dy_row, weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        dx = rstd * (g - (sum_g + n * sum_gd) / N_COLS)
        store(dx_row, cols, N_COLS, dx)


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
    for top in range(group * ROWS, n_rows, groups * ROWS):
        rows = top + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tile_of(dy_ptr, rows, cols, stride_dy, inside)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (tile_of(x_ptr, rows, cols, stride_x, inside) - mean) * rstd
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

    strides = dy.stride(0), x.stride(0), dx.stride(0)
    launch = on(dx_kernel, x)[(n_rows,)]
    launch(dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))

    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[1])]
    launch(dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
        x, weight = ctx.saved_tensors
        return *backward_op(dy.reshape(x.shape), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
