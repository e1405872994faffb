# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In dx_kernel, `slope = -sum_gd * rstd * rstd / N_COLS` has rstd squared; d = x - mean is not normalised here, so the factor must be rstd cubed (one rstd of the outer factor, one of n, one of mean(g * n)). The term n * mean(g * n) of dx is off by the factor 1 / rstd in every row whose deviation is not 1; dweight and dbias are right.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MOST_GROUPS = 32
TILE_ROWS, TILE_COLS = 16, 128
ROWS, COLS = tl.constexpr(TILE_ROWS), tl.constexpr(TILE_COLS)


@triton.jit
def sums_of_row(dy_row, x_row, weight_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of x, and the sums of d * d, g and g * d, with d = x - mean and g = dy * weight."""
    lanes = tl.arange(0, BLOCK)
    xs = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        xs += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(xs, axis=0) / N_COLS

    dds = tl.zeros((BLOCK,), dtype=tl.float32)
    gs = tl.zeros((BLOCK,), dtype=tl.float32)
    gds = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dds += d * d
        gs += g
        gds += g * d
    return mean, tl.sum(dds, axis=0), tl.sum(gs, axis=0), tl.sum(gds, axis=0)


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
    """dx = rstd * g + slope * d + level, which is linear in g = dy * weight and d = x - mean; one row a program.

    Mean and rstd of row i go to element i of two fp32 vectors.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    mean, squares, sum_g, sum_gd = sums_of_row(dy_row, x_row, weight_ptr, N_COLS, BLOCK)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    # Two numbers a row, so that an element costs three multiplications.
    slope = -sum_gd * rstd * rstd / N_COLS
    level = -sum_g * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = load(x_row, cols, N_COLS) - mean
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * g + slope * d + level)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, tiles_per_group
):
    """Sums of dy * n and of dy over a group of neighbouring rows; program (i, k) adds COLS columns of group k.

    A group has tiles_per_group tiles of ROWS rows. Its sums go to row k of two matrices, (groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    to_weight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    to_bias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for tile in range(tiles_per_group):
        rows = ((group * tiles_per_group + tile) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        exists = rows < n_rows
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        inside = exists[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        to_weight += dy * ((x.to(tl.float32) - mean[:, None]) * rstd[:, None])
        to_bias += dy
    weight_sums = sums_ptr + group.to(tl.int64) * n_cols
    bias_sums = sums_ptr + (groups + group).to(tl.int64) * n_cols
    store(weight_sums, cols, n_cols, tl.sum(to_weight, axis=0))
    store(bias_sums, cols, n_cols, tl.sum(to_bias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)

    rows_launch = on(dx_kernel, x)[(n_rows,)]
    rows_launch(
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip

    tiles = triton.cdiv(n_rows, TILE_ROWS)
    tiles_per_group = triton.cdiv(tiles, MOST_GROUPS)
    groups = triton.cdiv(tiles, tiles_per_group)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    cols_launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, TILE_COLS), groups)]
    cols_launch(dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), tiles_per_group)
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
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
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
