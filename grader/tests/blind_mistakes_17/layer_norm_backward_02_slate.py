# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MAX_CHUNKS = 32
TILE_ROWS = 16
TILE_COLS = 128


@triton.jit
def row_mean(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        lanes += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    return tl.sum(lanes, axis=0) / N_COLS


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
    """One row of dx for each program, and mean and rstd of that row for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    mean = row_mean(x_row, N_COLS, BLOCK)

    acc_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_g = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = load(x_row, cols, N_COLS) - mean
        d = tl.where(cols < N_COLS, d, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        acc_dd += d * d
        acc_g += g
        acc_gd += g * d

    variance = tl.sum(acc_dd, axis=0) / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g = tl.sum(acc_g, axis=0) / N_COLS
    mean_gn = tl.sum(acc_gd, axis=0) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, (g - mean_g - n * mean_gn) * rstd)


@triton.jit
def partial_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    dweight_parts,
    dbias_parts,
    n_rows,
    n_cols,
    rows_per_chunk,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums over the rows of a chunk; chunk k begins at row k * rows_per_chunk, a multiple of ROWS."""
    chunk = tl.program_id(axis=1).to(tl.int64)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    col_ok = cols[None, :] < n_cols
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for step in range(0, rows_per_chunk, ROWS):
        rows = chunk * rows_per_chunk + step + tl.arange(0, ROWS)
        row_ok = rows < n_rows
        inside = row_ok[:, None] & col_ok
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=row_ok, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
        dweight += dy * (x - mean[:, None]) * rstd[:, None]
        dbias += dy
    store(dweight_parts + chunk * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_parts + chunk * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def finish_kernel(
    dweight_parts, dbias_parts, dweight_ptr, dbias_ptr, chunks, n_cols, CHUNKS: tl.constexpr, COLS: tl.constexpr
):
    """Add up the chunks, at most CHUNKS of them, for COLS columns of both gradients."""
    k = tl.arange(0, CHUNKS)[:, None]
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    offs = k.to(tl.int64) * n_cols + cols[None, :]
    inside = (k < chunks) & (cols[None, :] < n_cols)
    store(dweight_ptr, cols, n_cols, tl.sum(tl.load(dweight_parts + offs, mask=inside, other=0.0), axis=0))
    store(dbias_ptr, cols, n_cols, tl.sum(tl.load(dbias_parts + offs, mask=inside, other=0.0), axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if dweight is None:
        dweight = torch.empty((n_cols,), device=x.device, dtype=weight.dtype)
    if dbias is None:
        dbias = torch.empty((n_cols,), device=x.device, dtype=weight.dtype)

    tiles = triton.cdiv(n_rows, TILE_ROWS)
    chunks = min(MAX_CHUNKS, tiles)
    rows_per_chunk = triton.cdiv(tiles, chunks) * TILE_ROWS

    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    dweight_parts = torch.empty((chunks, n_cols), device=x.device, dtype=torch.float32)
    dbias_parts = torch.empty((chunks, n_cols), device=x.device, dtype=torch.float32)

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
        BLOCK=block_of(n_cols),
    )
    strips = triton.cdiv(n_cols, TILE_COLS)
    on(partial_kernel, x)[(strips, chunks)](
        dy,
        x,
        mean,
        rstd,
        dweight_parts,
        dbias_parts,
        n_rows,
        n_cols,
        rows_per_chunk,
        dy.stride(0),
        x.stride(0),
        ROWS=TILE_ROWS,
        COLS=TILE_COLS,
    )
    on(finish_kernel, x)[(strips,)](
        dweight_parts, dbias_parts, dweight, dbias, chunks, n_cols, CHUNKS=MAX_CHUNKS, COLS=TILE_COLS
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
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
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
