# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In `gradients_kernel`, `dweight += g * n` takes g = dy * weight; it should be `dweight += dy * n`. dweight is wrong (by the factor weight of each column) in all cases where weight is not 1; dx and dbias are right.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def coefficients_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    level_ptr,
    slope_ptr,
    stride_dy,
    stride_x,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Four numbers of row i of x: mean, rstd, level = mean(g) and slope = mean(g * n), where g = dy * weight."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    sum_x = 0.0
    for start in range(0, N_COLS, BLOCK):
        sum_x += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = sum_x / N_COLS
    sum_dd = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        sum_dd += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(sum_dd / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(level_ptr + row, sum_g / N_COLS)
    tl.store(slope_ptr + row, rstd * sum_gd / N_COLS)


@triton.jit
def of_rows(vector_ptr, rows, n_rows):
    """Return the numbers of a column of rows, and 0 where there is no such row."""
    return tl.load(vector_ptr + rows, mask=rows < n_rows, other=0.0)


@triton.jit
def gradients_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    level_ptr,
    slope_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
):
    """dx in the COLS columns of program (i, k) and the rows of group k, and the group's part of the sums over rows.

    The rows are dealt out to the groups ROWS at a time. sums is (2, groups, n_cols): of dweight, and of dbias.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    weight = load(weight_ptr, cols, n_cols)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = of_rows(rstd_ptr, rows, n_rows)
        n = (x - of_rows(mean_ptr, rows, n_rows)) * rstd
        g = dy * weight
        dx = rstd * (g - of_rows(level_ptr, rows, n_rows) - n * of_rows(slope_ptr, rows, n_rows))
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += g * n
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if dweight is None:
        dweight = torch.empty((n_cols,), device=x.device, dtype=x.dtype)
    if dbias is None:
        dbias = torch.empty((n_cols,), device=x.device, dtype=x.dtype)
    mean, rstd, level, slope = torch.empty((4, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), device=x.device, dtype=torch.float32)
    by_row = on(coefficients_kernel, x)[(n_rows,)]
    by_row(
        dy, x, weight, mean, rstd, level, slope, dy.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    by_tile = on(gradients_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[1])]
    by_tile(
        dy, x, weight, dx, mean, rstd, level, slope, sums, n_rows, n_cols, dy.stride(0), x.stride(0), dx.stride(0)
    )
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
