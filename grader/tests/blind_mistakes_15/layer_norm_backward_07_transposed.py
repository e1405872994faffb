# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""Gradients of LayerNorm. The tiles of the column kernel have columns along axis 0 and rows along axis 1."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MOST_GROUPS = 32
TILE_ROWS, TILE_COLS = 16, 128


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    x_ptr,
    stride_x,
    dy_ptr,
    stride_dy,
    dx_ptr,
    stride_dx,
    weight_ptr,
    stats_ptr,
    n_rows,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row i of dx by program i. stats is (2, n_rows) fp32: the means, then 1 / sqrt(variance + eps)."""
    i = tl.program_id(axis=0)
    x_ptr += i.to(tl.int64) * stride_x
    dy_ptr += i.to(tl.int64) * stride_dy
    dx_ptr += i.to(tl.int64) * stride_dx
    lanes = tl.arange(0, BLOCK)
    scale = tl.cast(eps, tl.float32)

    if N_COLS <= BLOCK:
        # One block: everything stays in registers.
        inside = lanes < N_COLS
        x = load(x_ptr, lanes, N_COLS)
        g = load(dy_ptr, lanes, N_COLS) * load(weight_ptr, lanes, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(inside, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N_COLS + scale)
        n = d * rstd
        dx = rstd * (g - tl.sum(g, axis=0) / N_COLS - n * (tl.sum(g * n, axis=0) / N_COLS))
        store(dx_ptr, lanes, N_COLS, dx)
    else:
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            acc += load(x_ptr, start + lanes, N_COLS)
        mean = tl.sum(acc, axis=0) / N_COLS
        acc_dd = tl.zeros((BLOCK,), dtype=tl.float32)
        acc_g = tl.zeros((BLOCK,), dtype=tl.float32)
        acc_gd = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            d = tl.where(cols < N_COLS, load(x_ptr, cols, N_COLS) - mean, 0.0)
            g = load(dy_ptr, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            acc_dd += d * d
            acc_g += g
            acc_gd += g * d
        rstd = tl.rsqrt(tl.sum(acc_dd, axis=0) / N_COLS + scale)
        mean_g = tl.sum(acc_g, axis=0) / N_COLS
        mean_gn = rstd * (tl.sum(acc_gd, axis=0) / N_COLS)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            n = (load(x_ptr, cols, N_COLS) - mean) * rstd
            g = load(dy_ptr, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            store(dx_ptr, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))

    tl.store(stats_ptr + i, mean)
    tl.store(stats_ptr + n_rows + i, rstd)


@triton.jit
def weight_gradient_kernel(
    x_ptr,
    stride_x,
    dy_ptr,
    stride_dy,
    stats_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums of dy * n and of dy over group k, for COLS columns, by program (k, i).

    Group k has the tiles k, k + groups, k + 2 * groups and so on. sums is (2, groups, n_cols) fp32.
    """
    group = tl.program_id(axis=0)
    groups = tl.num_programs(axis=0)
    cols = tl.program_id(axis=1) * COLS + tl.arange(0, COLS)
    col = cols[:, None]
    by_n = tl.zeros((COLS, ROWS), dtype=tl.float32)
    plain = tl.zeros((COLS, ROWS), dtype=tl.float32)
    first = group * ROWS
    while first < n_rows:
        row = first + tl.arange(0, ROWS)[None, :]
        there = row < n_rows
        inside = there & (col < n_cols)
        row64 = row.to(tl.int64)
        dy = tl.load(dy_ptr + (row64 * stride_dy + col), mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + (row64 * stride_x + col), mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(stats_ptr + row, mask=there, other=0.0)
        rstd = tl.load(stats_ptr + n_rows + row, mask=there, other=0.0)
        by_n += dy * ((x - mean) * rstd)
        plain += dy
        first += groups * ROWS
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(by_n, axis=1))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(plain, axis=1))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    n_rows, n_cols = x.shape
    dx = x.new_empty((n_rows, n_cols)) if dx is None else dx
    dweight = weight.new_empty((n_cols,)) if dweight is None else dweight
    dbias = weight.new_empty((n_cols,)) if dbias is None else dbias
    stats = x.new_empty((2, n_rows), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        x,
        x.stride(0),
        dy,
        dy.stride(0),
        dx,
        dx.stride(0),
        weight,
        stats,
        n_rows,
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    groups = min(MOST_GROUPS, triton.cdiv(n_rows, TILE_ROWS))
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)
    on(weight_gradient_kernel, x)[(groups, triton.cdiv(n_cols, TILE_COLS))](
        x,
        x.stride(0),
        dy,
        dy.stride(0),
        stats,
        sums,
        n_rows,
        n_cols,
        ROWS=TILE_ROWS,
        COLS=TILE_COLS,
    )
    column_sums(sums[1], dbias)
    column_sums(sums[0], dweight)
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
        ctx.save_for_backward(weight, x)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        weight, x = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
