# labs/lab4_production_slice/layer_norm_backward.py | right | Exercises layer_norm_backward and layer_norm. Unusual: for rows up to 4096 columns one kernel does all three gradients, a program has many rows (k, k + programs, ...) and keeps fp32 sums of dweight and dbias in registers, which `column_sums` adds up; longer rows take a dx kernel and a kernel by columns.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import block_of, column_sums, load, on, store
from torch.library import triton_op

WIDTH = 4096  # a row of at most so many columns is read once, and its program has many rows
PROGRAMS = 512  # at most, for such rows; each has its own sums
GROUPS = 32  # of rows, for longer rows
MANY_WARPS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]  # six blocks stay in registers


@triton.autotune(configs=MANY_WARPS, key=["N_COLS"])
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
    """All three gradients for rows of one block; program k has rows k, k + programs and so on.

    Its sums of dy * n and of dy go to row k of the two matrices in sums, (2, programs, N_COLS) fp32.
    """
    program = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    cols = tl.arange(0, BLOCK)
    weight = load(weight_ptr, cols, N_COLS)
    eps = tl.cast(eps, tl.float32)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    dbias = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(program, n_rows, programs):
        row = tl.cast(index, tl.int64)
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(cols < N_COLS, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N_COLS + eps)
        n = d * rstd
        g = dy * weight
        mean_g = tl.sum(g, axis=0) / N_COLS
        mean_gn = tl.sum(g * n, axis=0) / N_COLS
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))
        dweight += dy * n
        dbias += dy
    store(sums_ptr + program * N_COLS, cols, N_COLS, dweight)
    store(sums_ptr + (programs + program) * N_COLS, cols, N_COLS, dbias)


@triton.autotune(configs=MANY_WARPS, key=["N_COLS"])
@triton.jit
def long_rows_kernel(
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
    """dx of row i, BLOCK columns at a time; its mean and rstd go to element i of two fp32 vectors."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, dy_row, dx_row = x_ptr + row * stride_x, dy_ptr + row * stride_dy, dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    gs = tl.zeros((BLOCK,), dtype=tl.float32)
    gds = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += d * d
        gs += g
        gds += g * d
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(gs, axis=0) / N_COLS
    mean_gn = rstd * tl.sum(gds, axis=0) / N_COLS
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def columns_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    place = group.to(tl.int64)
    store(sums_ptr + place * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + place) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    if n_cols <= WIDTH:
        programs = min(PROGRAMS, n_rows)
        sums = x.new_empty((2, programs, n_cols), dtype=torch.float32)
        launch = on(short_rows_kernel, x)[(programs,)]
        launch(dy, x, weight, dx, sums, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    else:
        mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
        launch = on(long_rows_kernel, x)[(n_rows,)]
        launch(dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=WIDTH)
        groups = min(GROUPS, triton.cdiv(n_rows, 16))
        sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)
        launch = on(columns_kernel, x)[(triton.cdiv(n_cols, 128), groups)]
        launch(dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), ROWS=16, COLS=128)
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
