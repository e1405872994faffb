# labs/lab4_production_slice/layer_norm_backward.py | right | Right, but unusual: dx_kernel is launched with at most 4096 programs, each of which takes every so many rows; the columns come with an index of the block; and a group of weight_gradient_kernel has a contiguous run of whole tiles, whose length the host computes.
"""The gradients of LayerNorm: a persistent kernel for dx, and contiguous runs of rows for the weights."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
MAX_PROGRAMS = 4096
TILE_ROWS = 16
ROWS, COLS = tl.constexpr(TILE_ROWS), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """Program i computes the rows i, i + programs, i + 2 * programs, and so on."""
    lanes = tl.arange(0, BLOCK)
    epsilon = tl.cast(eps, tl.float32)
    for index in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x

        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(BLOCKS):
            total += load(x_row, k * BLOCK + lanes, N_COLS)
        mean = tl.sum(total, axis=0) / N_COLS

        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        sum_g = tl.zeros((BLOCK,), dtype=tl.float32)
        sum_gd = tl.zeros((BLOCK,), dtype=tl.float32)
        for k in range(BLOCKS):
            cols = k * BLOCK + lanes
            # (x - mean) of lanes past the end is multiplied by 0
            d = (load(x_row, cols, N_COLS) - mean) * (cols < N_COLS).to(tl.float32)
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            squares += d * d
            sum_g += g
            sum_gd += g * d
        rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / N_COLS + epsilon)
        tl.store(mean_ptr + row, mean)
        tl.store(rstd_ptr + row, rstd)

        a = tl.sum(sum_g, axis=0) / N_COLS
        b = tl.sum(sum_gd, axis=0) * rstd / N_COLS
        for k in range(BLOCKS):
            cols = k * BLOCK + lanes
            n = (load(x_row, cols, N_COLS) - mean) * rstd
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            store(dx_ptr + row * stride_dx, cols, N_COLS, ((g - a) - n * b) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, rows_per_group
):
    """Group k has rows_per_group rows, a multiple of ROWS, from k * rows_per_group on; the last ones have fewer."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = group * rows_per_group
    last = tl.minimum(first + rows_per_group, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS).to(tl.int64)
        there = rows < last
        inside = there[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0)
        mean = tl.load(mean_ptr + rows, mask=there, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=there, other=0.0)
        n = (x.to(tl.float32) - mean[:, None]) * rstd[:, None]
        dweight += dy.to(tl.float32) * n
        dbias += dy.to(tl.float32)
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
    tiles = triton.cdiv(n_rows, TILE_ROWS)
    groups = min(GROUPS, tiles)
    rows_per_group = triton.cdiv(tiles, groups) * TILE_ROWS
    statistics = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    mean, rstd = statistics[0], statistics[1]
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    block = block_of(n_cols)
    on(dx_kernel, x)[(min(n_rows, MAX_PROGRAMS),)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block,
        BLOCKS=triton.cdiv(n_cols, block),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), rows_per_group
    )
    for terms, result in zip((sums[0], sums[1]), (dweight, dbias)):
        column_sums(terms, result)
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
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
