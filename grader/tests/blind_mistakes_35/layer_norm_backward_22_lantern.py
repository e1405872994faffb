# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | weight_gradient_kernel takes mean and rstd from the wrong halves of stats: dx_kernel stores the means first (stats_ptr + row) and rstd behind them (stats_ptr + n_rows + row), but the kernel of the weight loads rstd from stats_ptr + rows and mean from stats_ptr + n_rows + rows. So dweight sums dy * (x - rstd) * mean, wrong in every case, for layer_norm_backward and layer_norm; dx and dbias are right. It should load mean from stats_ptr + rows and rstd from stats_ptr + n_rows + rows.
"""Gradients of LayerNorm, and the norm for autograd."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def deviations(x_row, cols, mean, N_COLS: tl.constexpr):
    """x - mean at these columns, and 0 past the end of the row."""
    return tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)


@triton.jit
def weighted(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """g = dy * weight at these columns, and 0 past the end of the row."""
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    stats_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row i of dx, by program i; the statistics of the row go to stats, (2, n_rows) fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    n_rows = tl.num_programs(axis=0)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = deviations(x_row, cols, mean, N_COLS)
        g = weighted(dy_row, weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)

    mean_g = sum_g / N_COLS
    mean_gn = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = deviations(x_row, cols, mean, N_COLS) * rstd
        g = weighted(dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n and of dy over group k of the rows, for COLS columns; program (i, k)."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        exists = rows < n_rows
        inside = exists & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(stats_ptr + rows, mask=exists, other=0.0)
        mean = tl.load(stats_ptr + n_rows + rows, mask=exists, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    stats = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    strides = dy.stride(0), x.stride(0)

    by_rows = on(dx_kernel, x)[(n_rows,)]
    by_rows(
        dy, x, weight, dx, stats, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    by_columns = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    by_columns(dy, x, stats, sums, n_rows, n_cols, *strides)
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
