# labs/lab4_production_slice/layer_norm_backward.py | right | The sums of a row come in one sweep: each block has its own mean, and its sums (squares, g, g * d) are moved to the joint mean as by Chan, Golub and LeVeque. The groups are added up by an own kernel that writes dweight and dbias in one launch.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    stats_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of one row, in two sweeps. Mean and rstd of row i go to stats[0, i] and stats[1, i].

    The first sweep joins blocks as Chan, Golub and LeVeque do: each block has a mean of its own, and sums of
    differences from it, which move to the mean of all that was seen when the block joins the others.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    mean = 0.0
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        count = tl.minimum(N_COLS - start, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        block_mean = tl.sum(x, axis=0) / count
        d = tl.where(cols < N_COLS, x - block_mean, 0.0)
        block_g = tl.sum(g, axis=0)
        share = count / (start + count)
        step = block_mean - mean
        joined = mean + step * share
        # `start` columns came before these; with none, the step counts for nothing.
        squares += tl.sum(d * d, axis=0) + step * (start * share) * step
        sum_gd += tl.sum(g * d, axis=0) + (mean - joined) * sum_g + (block_mean - joined) * block_g
        sum_g += block_g
        mean = joined
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)
    mean_g = sum_g / N_COLS
    mean_gn = sum_gd / N_COLS * rstd
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def partial_kernel(
    dy_ptr,
    x_ptr,
    stats_ptr,
    partial_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums of dy * n and of dy over the tiles k, k + groups, ... of ROWS rows; program (i, k) has COLS columns."""
    group, groups = tl.program_id(axis=1), tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    down = tl.arange(0, ROWS).to(tl.int64)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + down
        exists = rows < n_rows
        inside = exists[:, None] & (cols < n_cols)[None, :]
        mean = tl.load(stats_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(stats_ptr + n_rows + rows, mask=exists, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * ((x - mean[:, None]) * rstd[:, None])
        dbias += dy
    store(partial_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(partial_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def join_kernel(
    partial_ptr, dweight_ptr, dbias_ptr, groups, n_cols, MOST: tl.constexpr, COLS: tl.constexpr
):
    """Add up the groups, of which there are at most MOST; program (i, 0) for dweight, (i, 1) for dbias."""
    which = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    group = tl.arange(0, MOST)
    inside = (group < groups)[:, None] & (cols < n_cols)[None, :]
    lines = (which * groups + group)[:, None] * n_cols
    total = tl.sum(tl.load(partial_ptr + lines + cols[None, :], mask=inside, other=0.0), axis=0)
    if which == 0:
        store(dweight_ptr, cols, n_cols, total)
    else:
        store(dbias_ptr, cols, n_cols, total)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    stats = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    partial = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, stats, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(partial_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, stats, partial, n_rows, n_cols, dy.stride(0), x.stride(0), ROWS=16, COLS=128
    )
    on(join_kernel, x)[(triton.cdiv(n_cols, 64), 2)](
        partial, dweight, dbias, groups, n_cols, MOST=GROUPS, COLS=64
    )
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
