# labs/lab4_production_slice/layer_norm_backward.py | right | mean and variance in one loop: each block's own mean and squared differences, joined pairwise (Chan); mean and rstd packed as (n_rows, 2); groups are stretches of neighbouring rows, walked by a while loop, possibly empty
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator.

Statistics: instead of a sweep for the mean and another one for the variance I use the update formula of Chan,
Golub and LeVeque. A block gets its own mean and its own sum of squared differences, both exact in the sense of
the README, and two parts A (so far) and B (this block) are joined by

    delta = mean_B - mean_A
    mean  = mean_A + delta * n_B / (n_A + n_B)
    m2    = m2_A + m2_B + delta^2 * n_A * n_B / (n_A + n_B)

Nothing large is subtracted from anything large. For one block n_A is 0 and the formulas give back mean_B and m2_B.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32


@triton.jit
def join(n_a, mean_a, m2_a, n_b, mean_b, m2_b):
    """Count, mean and squared differences of two parts together."""
    n = n_a + n_b
    share = n_b / n
    delta = mean_b - mean_a
    return n, mean_a + delta * share, m2_a + m2_b + delta * delta * (n_a * share)


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
    """dx = rstd * (g - mean(g) - n * mean(g * n)); (mean, rstd) of row i go to row i of stats, (n_rows, 2)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    seen = 0.0
    mean = 0.0
    m2 = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        count = tl.sum(inside.to(tl.float32), axis=0)
        block_mean = tl.sum(x, axis=0) / count
        d = tl.where(inside, x - block_mean, 0.0)
        seen, mean, m2 = join(seen, mean, m2, count, block_mean, tl.sum(d * d, axis=0))
    rstd = tl.rsqrt(m2 / N_COLS + tl.cast(eps, tl.float32))
    tl.store(stats_ptr + 2 * row, mean)
    tl.store(stats_ptr + 2 * row + 1, rstd)

    sum_g = 0.0
    sum_gn = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        # no tl.where here: g is 0 past the end, so g * n is 0 there
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        sum_g += tl.sum(g, axis=0)
        sum_gn += tl.sum(g * n, axis=0)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - (sum_g + n * sum_gn) / N_COLS) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Program (k, i): rows of group k, COLS columns. Row k of sums is for dweight, row groups + k for dbias."""
    group = tl.program_id(axis=0)
    groups = tl.num_programs(axis=0)
    cols = tl.program_id(axis=1) * COLS + tl.arange(0, COLS)
    in_row = cols[None, :] < n_cols

    per_group = (n_rows + groups - 1) // groups
    start = group * per_group
    last = tl.minimum(start + per_group, n_rows)

    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    while start < last:
        rows = start + tl.arange(0, ROWS)
        mine = rows < last
        rows = rows.to(tl.int64)
        inside = mine[:, None] & in_row
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(stats_ptr + 2 * rows, mask=mine, other=0.0)
        rstd = tl.load(stats_ptr + 2 * rows + 1, mask=mine, other=0.0)
        dweight += dy * ((x - mean[:, None]) * rstd[:, None])
        dbias += dy
        start += ROWS

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
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    stats = torch.empty((n_rows, 2), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)

    strides = dy.stride(0), x.stride(0)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, stats, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(groups, triton.cdiv(n_cols, 128))](
        dy, x, stats, sums, n_rows, n_cols, *strides, ROWS=16, COLS=128
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
