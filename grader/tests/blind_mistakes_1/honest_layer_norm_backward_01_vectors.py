# lab4_production_slice/layer_norm_backward.py | honest | the weight gradients use contiguous chunks of rows (rounded up), one row at a time into two vectors of 256 columns, with rows along grid axis 0 and columns along axis 1; the groups are added up by an own kernel for dweight and dbias at once (no column_sums); dx in four sweeps with tl.fma | meets the whole contract
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

CHUNKS = 64
WIDTH = tl.constexpr(256)


@triton.jit
def total_of(row_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    acc = load(row_ptr, lanes, N_COLS)
    for start in range(BLOCK, N_COLS, BLOCK):
        acc += load(row_ptr, start + lanes, N_COLS)
    return tl.sum(acc, axis=0)


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
    """dx of row i. Mean and rstd of row i go to columns i and n_rows + i of stats."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    mean = total_of(x_row, N_COLS, BLOCK) / N_COLS

    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(d * d, axis=0)
    variance = squares / N_COLS + tl.cast(eps, tl.float32)
    rstd = tl.rsqrt(variance)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)

    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = load(x_row, cols, N_COLS) - mean
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    mean_g = sum_g / N_COLS
    mean_gn = (sum_gd * rstd) / N_COLS

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, tl.fma(-n, mean_gn, g - mean_g) * rstd)


@triton.jit
def chunk_kernel(dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, chunk, stride_dy, stride_x):
    """Program (k, i): WIDTH columns of rows k * chunk and on. Row 2 * k of sums is for dweight, the next for dbias."""
    k = tl.program_id(axis=0)
    cols = tl.program_id(axis=1) * WIDTH + tl.arange(0, WIDTH)
    dweight = tl.zeros((WIDTH,), dtype=tl.float32)
    dbias = tl.zeros((WIDTH,), dtype=tl.float32)
    for r in range(k * chunk, tl.minimum(k * chunk + chunk, n_rows)):
        row = tl.cast(r, tl.int64)
        mean = tl.load(stats_ptr + row)
        rstd = tl.load(stats_ptr + n_rows + row)
        dy = load(dy_ptr + row * stride_dy, cols, n_cols)
        x = load(x_ptr + row * stride_x, cols, n_cols)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + 2 * k * n_cols, cols, n_cols, dweight)
    store(sums_ptr + (2 * k + 1) * n_cols, cols, n_cols, dbias)


@triton.jit
def finish_kernel(sums_ptr, dweight_ptr, dbias_ptr, chunks, n_cols):
    """Add up the chunks, in their order; program (i, 0) for dweight, (i, 1) for dbias."""
    which = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for k in range(chunks):
        total += load(sums_ptr + (2 * k + which) * n_cols, cols, n_cols)
    if which == 0:
        store(dweight_ptr, cols, n_cols, total)
    else:
        store(dbias_ptr, cols, n_cols, total)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    chunk = triton.cdiv(n_rows, CHUNKS)
    chunks = triton.cdiv(n_rows, chunk)
    stats = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2 * chunks, n_cols), device=x.device, dtype=torch.float32)
    wide = triton.cdiv(n_cols, WIDTH)
    on(dx_kernel, x)[(n_rows,)](
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
    on(chunk_kernel, x)[(chunks, wide)](
        dy, x, stats, sums, n_rows, n_cols, chunk, dy.stride(0), x.stride(0)
    )
    on(finish_kernel, x)[(wide, 2)](sums, dweight, dbias, chunks, n_cols)
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
