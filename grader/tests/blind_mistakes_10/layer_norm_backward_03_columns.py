# labs/lab4_production_slice/layer_norm_backward.py | corner | a group has `per_group = n_rows // groups` rows in one piece (layer_norm_backward), and the last n_rows % groups rows belong to no group; must be rounded up, with a mask. Shows in dweight and dbias where the number of rows is not a multiple of the number of groups (33 rows in 3 groups is right, 40 rows is not); dx is right.
"""The gradients of LayerNorm: statistics, then dx by rows and the weight's gradients by columns."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MAX_GROUPS = 32
TILE_ROWS = 16
TILE_COLS = 64


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, stats_ptr, n_rows, sdy, sx, sdx, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """One row: dx, and its mean and rstd for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * sdy
    x_ptr += row * sx
    dx_ptr += row * sdx

    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_ptr, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = mean / N_COLS

    dd = tl.zeros((BLOCK,), dtype=tl.float32)
    gg = tl.zeros((BLOCK,), dtype=tl.float32)
    gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_ptr, cols, N_COLS) - mean, 0.0)
        g = load(dy_ptr, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dd += d * d
        gg += g
        gd += g * d
    rstd = tl.rsqrt(tl.sum(dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    c1 = tl.sum(gg, axis=0) / N_COLS
    c2 = tl.sum(gd, axis=0) / N_COLS * rstd
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_ptr, cols, N_COLS) - mean) * rstd
        g = load(dy_ptr, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr, cols, N_COLS, (g - c1 - n * c2) * rstd)


@triton.jit
def columns_kernel(
    dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, per_group, sdy, sx, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program (i, k): COLS columns of the rows of group k, which are neighbours."""
    group = tl.program_id(1)
    groups = tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    begin = group * per_group
    end = begin + per_group
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for r in range(begin, end, ROWS):
        rows = r + tl.arange(0, ROWS).to(tl.int64)
        valid = rows < end
        mean = tl.load(stats_ptr + rows, mask=valid, other=0.0)
        rstd = tl.load(stats_ptr + n_rows + rows, mask=valid, other=0.0)
        tile = valid[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * sdy + cols[None, :], mask=tile, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * sx + cols[None, :], mask=tile, other=0.0).to(tl.float32)
        dweight += dy * ((x - mean[:, None]) * rstd[:, None])
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """dx, dweight and dbias."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(MAX_GROUPS, triton.cdiv(n_rows, TILE_ROWS))
    per_group = n_rows // groups
    stats = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)

    dx_launch = on(dx_kernel, x)[(n_rows,)]
    dx_launch(
        dy,
        x,
        weight,
        dx,
        stats,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    columns_launch = on(columns_kernel, x)[(triton.cdiv(n_cols, TILE_COLS), groups)]
    columns_launch(
        dy, x, stats, sums, n_rows, n_cols, per_group, dy.stride(0), x.stride(0), ROWS=TILE_ROWS, COLS=TILE_COLS
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
        grads = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return grads[0], grads[1], grads[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
