# labs/lab4_production_slice/layer_norm_backward.py | corner | In layer_norm_backward each group gets `rows_per_group = n_rows // groups` rows in one piece; it should be rounded up, `triton.cdiv(n_rows, groups)` (with the end limited to n_rows). The last n_rows % groups rows are in no group, so dweight and dbias lack them. Shows only with more than 16 rows (below that there is one group), where the number of rows is no multiple of groups = min(32, cdiv(n_rows, 16)), e.g. 29, 37, 301, 600 or 1000 rows. dx is right.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MOST_GROUPS = 32
TILE_ROWS, TILE_COLS = 16, 128


@triton.jit
def row_mean(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of a row, from one partial sum for each lane."""
    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        partial += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    return tl.sum(partial, axis=0) / N_COLS


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dx_ptr,
    dy_ptr,
    x_ptr,
    gamma_ptr,
    mean_ptr,
    rstd_ptr,
    dx_step,
    dy_step,
    x_step,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64)
    dx_ptr += i * dx_step
    dy_ptr += i * dy_step
    x_ptr += i * x_step

    mean = row_mean(x_ptr, N_COLS, BLOCK)
    power = 0.0
    pull = 0.0
    twist = 0.0
    for start in range(0, N_COLS, BLOCK):
        j = start + tl.arange(0, BLOCK)
        away = tl.where(j < N_COLS, load(x_ptr, j, N_COLS) - mean, 0.0)
        g = load(gamma_ptr, j, N_COLS) * load(dy_ptr, j, N_COLS)
        power += tl.sum(away * away, axis=0)
        pull += tl.sum(g, axis=0)
        twist += tl.sum(g * away, axis=0)
    rstd = tl.rsqrt(power / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + i, mean)
    tl.store(rstd_ptr + i, rstd)

    pull = pull / N_COLS
    twist = twist * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        j = start + tl.arange(0, BLOCK)
        n = rstd * (load(x_ptr, j, N_COLS) - mean)
        g = load(gamma_ptr, j, N_COLS) * load(dy_ptr, j, N_COLS)
        store(dx_ptr, j, N_COLS, (g - pull - twist * n) * rstd)


@triton.jit
def group_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    by_n_ptr,
    plain_ptr,
    rows_per_group,
    n_cols,
    dy_step,
    x_step,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program (i, k) adds up dy * n and dy in COLS columns, over the rows of group k, which lie together."""
    group = tl.program_id(1)
    j = tl.program_id(0) * COLS + tl.arange(0, COLS)
    first = group * rows_per_group
    behind = first + rows_per_group
    by_n = tl.zeros((ROWS, COLS), dtype=tl.float32)
    plain = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for top in range(first, behind, ROWS):
        i = top + tl.arange(0, ROWS)
        mean = tl.load(mean_ptr + i, mask=i < behind, other=0.0)
        rstd = tl.load(rstd_ptr + i, mask=i < behind, other=0.0)
        inside = (i < behind)[:, None] & (j < n_cols)[None, :]
        i = i.to(tl.int64)
        dy = tl.load(dy_ptr + (i * dy_step)[:, None] + j[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + (i * x_step)[:, None] + j[None, :], mask=inside, other=0.0).to(tl.float32)
        by_n += dy * (x - mean[:, None]) * rstd[:, None]
        plain += dy
    store(by_n_ptr + group * n_cols, j, n_cols, tl.sum(by_n, axis=0))
    store(plain_ptr + group * n_cols, j, n_cols, tl.sum(plain, axis=0))


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

    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dx, dy, x, weight, mean, rstd, dx.stride(0), dy.stride(0), x.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )

    groups = min(MOST_GROUPS, triton.cdiv(n_rows, TILE_ROWS))
    rows_per_group = n_rows // groups
    by_n = x.new_empty((groups, n_cols), dtype=torch.float32)
    plain = x.new_empty((groups, n_cols), dtype=torch.float32)
    on(group_kernel, x)[(triton.cdiv(n_cols, TILE_COLS), groups)](
        dy, x, mean, rstd, by_n, plain, rows_per_group, n_cols, dy.stride(0), x.stride(0),
        ROWS=TILE_ROWS, COLS=TILE_COLS,
    )
    column_sums(by_n, dweight)
    column_sums(plain, dbias)
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
        y = layer_norm_op(x, weight, bias, eps)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
