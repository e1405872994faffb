# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | dx_kernel: `slope = sum_gd / N_COLS` is mean(g * (x - mean)) and lacks the factor rstd that makes it mean(g * n); dx subtracts `n * slope` and is wrong in every row whose rstd is not 1 (nearly every case, also in layer_norm). dweight and dbias are right. Should be `slope = sum_gd * rstd / N_COLS`.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(32), tl.constexpr(64)


@triton.jit
def difference(x_row, cols, mean, N_COLS: tl.constexpr):
    """x - mean at the columns that exist, and 0 at the others."""
    return tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)


@triton.jit
def upstream(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """dy * weight, what arrives at the normalised row."""
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    statistics_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of row i, by program i; its mean and its rstd go to statistics[0, i] and statistics[1, i], fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0) / N_COLS

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = difference(x_row, cols, mean, N_COLS)
        g = upstream(dy_row, weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(statistics_ptr + row, mean)
    tl.store(statistics_ptr + n_rows + row, rstd)

    level = sum_g / N_COLS
    slope = sum_gd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = difference(x_row, cols, mean, N_COLS) * rstd
        g = upstream(dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - level - n * slope) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, statistics_ptr, dweight_ptr, dbias_ptr, n_rows, n_cols, stride_dy, stride_x
):
    """Row k of two (groups, n_cols) fp32 matrices: sums of dy * n and of dy over group k, for COLS columns."""
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, tl.num_programs(axis=1) * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        mean = tl.load(statistics_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(statistics_ptr + n_rows + rows, mask=rows < n_rows, other=0.0)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(dweight_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_ptr + group * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    statistics = x.new_empty((2, n_rows), dtype=torch.float32)
    of_weight = x.new_empty((groups, n_cols), dtype=torch.float32)
    of_bias = x.new_empty((groups, n_cols), dtype=torch.float32)

    launch = on(dx_kernel, x)[(n_rows,)]
    launch(
        dy,
        x,
        weight,
        dx,
        statistics,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    launch(dy, x, statistics, of_weight, of_bias, n_rows, n_cols, dy.stride(0), x.stride(0))
    column_sums(of_weight, dweight)
    column_sums(of_bias, dbias)
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
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
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
