# labs/lab4_production_slice/layer_norm_backward.py | right | Nothing is wrong. Unusual: sums of squares, g and g * d are tiles of lanes, reduced together by one `tl.reduce` over a tuple with an own combine function; blocks of 4096 columns and 8 or 16 warps only; rows are dealt out in consecutive runs (none empty) instead of interleaved groups, dweight and dbias lie next to each other in sums, (runs, 2, n_cols), and one own kernel finishes both instead of `column_sums`.
"""The gradients of LayerNorm: three sums of a row in one reduction, and rows dealt out in runs."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import block_of, load, on, store
from torch.library import triton_op

RUNS = 48  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of run_kernel loads
PARTS = tl.constexpr(16)  # runs that a program of finish_kernel adds at once
WIDTH = 4096  # columns of a block: three tiles of sums, and the row beside them, stay in registers
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def add_three(a0, a1, a2, b0, b1, b2):
    return a0 + b0, a1 + b1, a2 + b2


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
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
    """dx = rstd * (g - (sum(g) + n * sum(g * n)) / N_COLS), where g = dy * weight; program i computes row i.

    n is the normalised row, (x - mean) * rstd. Mean and rstd of row i go to element i of two fp32 vectors.
    Each lane has sums of its own, so that a row of many blocks has two reductions as well.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, x_row, dx_row = dy_ptr + row * stride_dy, x_ptr + row * stride_x, dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    of_lane = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        of_lane += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(of_lane, axis=0) / N_COLS

    dd = tl.zeros((BLOCK,), dtype=tl.float32)
    gs = tl.zeros((BLOCK,), dtype=tl.float32)
    gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dd += d * d
        gs += g
        gd += g * d
    squares, sum_g, sum_gd = tl.reduce((dd, gs, gd), 0, add_three)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    mean_g = sum_g / N_COLS
    mean_gn = rstd * sum_gd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(dx_row, cols, N_COLS, rstd * (g - (mean_g + n * mean_gn)))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def run_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, tiles, stride_dy, stride_x):
    """Sums of dy * n and of dy over a run of rows, `tiles` tiles of ROWS; program (i, k) has run k.

    They go to rows 2 * k and 2 * k + 1 of sums, fp32.
    """
    run = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    first = run * tiles * ROWS
    for start in range(first, tl.minimum(first + tiles * ROWS, n_rows), ROWS):
        rows = start + tl.arange(0, ROWS)
        exists = rows < n_rows
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)[:, None]
        far, inside = rows[:, None].to(tl.int64), exists[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_ptr + far * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + far * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    sums_row = sums_ptr + 2 * run.to(tl.int64) * n_cols
    store(sums_row, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_row + n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def finish_kernel(sums_ptr, dweight_ptr, dbias_ptr, n_runs, n_cols):
    """Add up the sums of all runs, always in the same order; program i has COLS columns of both results."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((PARTS, COLS), dtype=tl.float32)
    dbias = tl.zeros((PARTS, COLS), dtype=tl.float32)
    for start in range(0, n_runs, PARTS):
        runs = (start + tl.arange(0, PARTS))[:, None].to(tl.int64)
        inside = (runs < n_runs) & (cols < n_cols)[None, :]
        place = sums_ptr + 2 * runs * n_cols + cols[None, :]
        dweight += tl.load(place, mask=inside, other=0.0)
        dbias += tl.load(place + n_cols, mask=inside, other=0.0)
    store(dweight_ptr, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_ptr, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    all_tiles = triton.cdiv(n_rows, ROWS)
    tiles = triton.cdiv(all_tiles, RUNS)
    runs = triton.cdiv(all_tiles, tiles)
    sums = x.new_empty((runs, 2, n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
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
        BLOCK=min(block_of(n_cols), WIDTH),
    )
    across = triton.cdiv(n_cols, COLS)
    on(run_kernel, x)[(across, runs)](
        dy, x, mean, rstd, sums, n_rows, n_cols, tiles, dy.stride(0), x.stride(0)
    )
    on(finish_kernel, x)[(across,)](sums, dweight, dbias, runs, n_cols)
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
