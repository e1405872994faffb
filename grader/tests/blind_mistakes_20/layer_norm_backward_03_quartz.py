# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator.

Rows of at most SHORT columns: one kernel, whose programs keep dweight and dbias of all their rows in registers.
Longer rows: a kernel by rows, then one by columns.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

SHORT = 8192
WORKERS = 256  # programs for short rows
GROUPS = 64  # groups of rows for long rows
COLS = tl.constexpr(512)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def short_rows_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Worker w has the rows w, w + workers, ...; its sums go to row w of the two matrices in sums."""
    worker = tl.program_id(axis=0)
    workers = tl.num_programs(axis=0)
    cols = tl.arange(0, BLOCK)
    weight = load(weight_ptr, cols, N_COLS)
    small = tl.cast(eps, tl.float32)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    dbias = tl.zeros((BLOCK,), dtype=tl.float32)
    row = worker.to(tl.int64)
    while row < n_rows:
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(cols < N_COLS, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N_COLS + small)
        n = d * rstd
        g = dy * weight
        mean_g = tl.sum(g, axis=0) / N_COLS
        mean_gn = tl.sum(g * n, axis=0) / N_COLS
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))
        dweight += dy * n
        dbias += dy
        row += workers
    store(sums_ptr + worker * N_COLS, cols, N_COLS, dweight)
    store(sums_ptr + (workers + worker) * N_COLS, cols, N_COLS, dbias)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def long_row_kernel(
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
    """dx of one row in three sweeps; mean to stats[0, row], rstd to stats[1, row]."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    lanes = tl.arange(0, BLOCK)
    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, start + lanes, N_COLS), axis=0) / N_COLS
    dd = tl.zeros((BLOCK,), dtype=tl.float32)
    sg = tl.zeros((BLOCK,), dtype=tl.float32)
    sgd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dd += d * d
        sg += g
        sgd += g * d
    rstd = tl.rsqrt(tl.sum(dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(sg, axis=0) / N_COLS
    mean_gn = tl.sum(sgd, axis=0) * rstd / N_COLS
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def long_columns_kernel(dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n and dy over the rows k, k + groups, ..., for COLS columns, row after row."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((COLS,), dtype=tl.float32)
    dbias = tl.zeros((COLS,), dtype=tl.float32)
    row = group.to(tl.int64)
    while row < n_rows:
        mean = tl.load(stats_ptr + row)
        rstd = tl.load(stats_ptr + n_rows + row)
        dy = load(dy_ptr + row * stride_dy, cols, n_cols)
        dweight += dy * ((load(x_ptr + row * stride_x, cols, n_cols) - mean) * rstd)
        dbias += dy
        row += groups
    store(sums_ptr + group * n_cols, cols, n_cols, dweight)
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, dbias)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    parts = min(n_rows, WORKERS if n_cols <= SHORT else GROUPS)
    sums = torch.empty((2, parts, n_cols), device=x.device, dtype=torch.float32)
    if n_cols <= SHORT:
        launch = on(short_rows_kernel, x)[(parts,)]
        launch(dy, x, weight, dx, sums, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block)
    else:
        stats = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
        launch = on(long_row_kernel, x)[(n_rows,)]
        launch(dy, x, weight, dx, stats, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block)
        launch = on(long_columns_kernel, x)[(triton.cdiv(n_cols, COLS), parts)]
        launch(dy, x, stats, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
