# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In `tiles_kernel`, `dweight += g * n` should be `dweight += dy * n`: g is dy * weight, so each dweight is multiplied once too often by its own weight. dx and dbias are right; dweight is wrong in all cases in which the weight is not 1.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator.

Sweep one: a program for each row finds the four numbers of the row that dx needs. Sweep two: tiles of rows and
columns, which store dx and add up the sums of the columns from the same loads.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

BANDS = 64  # of rows at most, each with its own sums
TALL, WIDE = tl.constexpr(16), tl.constexpr(128)  # the tile of the second sweep


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_numbers_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    mean_g_ptr,
    mean_gn_ptr,
    stride_dy,
    stride_x,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store mean, rstd, mean(g) and mean(g * n) of row i, in fp32; g = dy * weight, and program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    lanes = tl.arange(0, BLOCK)

    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + lanes, N_COLS), axis=0)
    mean = total / N_COLS

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(mean_g_ptr + row, sum_g / N_COLS)
    tl.store(mean_gn_ptr + row, rstd * sum_gd / N_COLS)


@triton.jit
def tiles_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    mean_g_ptr,
    mean_gn_ptr,
    dweight_sums_ptr,
    dbias_sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
):
    """dx of WIDE columns of band k, and the sums of these columns over the band; program (i, k).

    Tiles of TALL rows are dealt out to the bands in turn. The sums go to row k of two (bands, n_cols) matrices.
    """
    band = tl.program_id(axis=1)
    bands = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    weight = load(weight_ptr, cols, n_cols)[None, :]
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    dbias = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(band * TALL, n_rows, bands * TALL):
        rows = (start + tl.arange(0, TALL)).to(tl.int64)
        there = rows < n_rows
        inside = there[:, None] & (cols < n_cols)[None, :]
        mean = tl.load(mean_ptr + rows, mask=there, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=there, other=0.0)[:, None]
        mean_g = tl.load(mean_g_ptr + rows, mask=there, other=0.0)[:, None]
        mean_gn = tl.load(mean_gn_ptr + rows, mask=there, other=0.0)[:, None]
        rows = rows[:, None]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        n = (x - mean) * rstd
        g = dy * weight
        dx = rstd * (g - mean_g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += g * n
        dbias += dy
    store(dweight_sums_ptr + band * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_sums_ptr + band * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd, mean_g, mean_gn = torch.empty((4, n_rows), device=x.device, dtype=torch.float32)
    bands = min(BANDS, triton.cdiv(n_rows, TALL))
    dweight_sums, dbias_sums = x.new_empty((2, bands, n_cols), dtype=torch.float32)
    numbers = (mean, rstd, mean_g, mean_gn)
    on(row_numbers_kernel, x)[(n_rows,)](
        dy, x, weight, *numbers, dy.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(tiles_kernel, x)[(triton.cdiv(n_cols, WIDE), bands)](
        dy, x, weight, dx, *numbers, dweight_sums, dbias_sums, n_rows, n_cols,
        dy.stride(0), x.stride(0), dx.stride(0),
    )
    column_sums(dweight_sums, dweight)
    column_sums(dbias_sums, dbias)
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
