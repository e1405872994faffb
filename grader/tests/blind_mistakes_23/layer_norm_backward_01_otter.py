# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In columns_kernel the sums are taken of `g = upstream(...)`, which is dy * weight, where they should be taken of dy alone (dw += dy * n, db += dy). dweight and dbias come out multiplied by the weight of their column in every case; dx is right.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

TEAMS = 128  # of rows, at most
WIDE = 512  # columns of a program of columns_kernel


@triton.jit
def upstream(dy_row, w_ptr, cols, n_cols):
    """The gradient that arrives at the normalised row, 0 past the end."""
    return load(dy_row, cols, n_cols) * load(w_ptr, cols, n_cols)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rows_kernel(
    dy_ptr, x_ptr, w_ptr, dx_ptr, mean_ptr, rstd_ptr, s_dy, s_x, s_dx, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx of row i by program i; it leaves mean and rstd of the row behind."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * s_dy
    x_row = x_ptr + row * s_x
    dx_row = dx_ptr + row * s_dx
    lanes = tl.arange(0, BLOCK)

    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, start + lanes, N_COLS), axis=0)
    mean = mean / N_COLS

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = upstream(dy_row, w_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g = sum_g / N_COLS
    mean_gn = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = upstream(dy_row, w_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def columns_kernel(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, s_dy, s_x, WIDE: tl.constexpr
):
    """Program (j, k) takes WIDE columns of rows k, k + teams, k + 2 * teams ..., a row at a time."""
    team = tl.program_id(axis=1)
    teams = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    dw = tl.zeros((WIDE,), dtype=tl.float32)
    db = tl.zeros((WIDE,), dtype=tl.float32)
    for r in range(team, n_rows, teams):
        row = tl.cast(r, tl.int64)
        mean = tl.load(mean_ptr + row)
        rstd = tl.load(rstd_ptr + row)
        n = (load(x_ptr + row * s_x, cols, n_cols) - mean) * rstd
        g = upstream(dy_ptr + row * s_dy, w_ptr, cols, n_cols)
        dw += g * n
        db += g
    store(sums_ptr + team * n_cols, cols, n_cols, dw)
    store(sums_ptr + (teams + team) * n_cols, cols, n_cols, db)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    teams = min(TEAMS, n_rows)
    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    sums = x.new_empty((2, teams, n_cols), dtype=torch.float32)

    on(rows_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(columns_kernel, x)[(triton.cdiv(n_cols, WIDE), teams)](
        dy, x, weight, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), WIDE=WIDE
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
