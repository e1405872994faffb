# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | `slope = sum_gd * rstd / N_COLS` in `dx_kernel` is used with `slope * d`, where d = x - mean is not normalised: it should be `sum_gd * rstd * rstd / N_COLS` (n * mean(g * n) has rstd once from each n). dx is wrong wherever rstd is not 1, in all cases with more than one column; dweight and dbias are right.
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
def centred(row_ptr, cols, mean, N_COLS: tl.constexpr):
    """Differences from the mean, 0 past the end of the row."""
    return tl.where(cols < N_COLS, load(row_ptr, cols, N_COLS) - mean, 0.0)


@triton.jit
def scaled_gradient(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """g = dy * weight, 0 past the end of the row."""
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.jit
def row_mean(row_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of a row."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(row_ptr, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    return total / N_COLS


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
    """The row of dx, and mean and rstd of the row of x; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    mean = row_mean(x_row, N_COLS, BLOCK)
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = centred(x_row, cols, mean, N_COLS)
        g = scaled_gradient(dy_row, weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    # The two numbers of the row that stand in the formula for each of its elements.
    level = sum_g / N_COLS
    slope = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = centred(x_row, cols, mean, N_COLS)
        g = scaled_gradient(dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - level - slope * d))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    across = cols[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        exists = rows < n_rows
        inside = exists & (across < n_cols)
        down = rows.to(tl.int64)
        dy = tl.load(dy_ptr + down * stride_dy + across, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + down * stride_x + across, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + down, mask=exists, other=0.0)
        rstd = tl.load(rstd_ptr + down, mask=exists, other=0.0)
        dweight += dy * ((x - mean) * rstd)
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
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
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
