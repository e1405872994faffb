# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator.

Two kernels. The first goes along each row and leaves four numbers of it. With these every element of dx
stands for itself, so the second goes over the matrix in tiles: it stores dx and adds up dweight and dbias.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 64
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def four_numbers_kernel(
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
    """Of row i: mean, rstd, mean(g) and mean(g * n), where g = dy * weight and n is the normalised row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy

    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0) / N_COLS

    variance = 0.0
    mean_g = 0.0
    mean_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        d = (load(x_row, cols, N_COLS) - mean) * (cols < N_COLS).to(tl.float32)
        variance += tl.sum(d * d, axis=0) / N_COLS
        mean_g += tl.sum(g, axis=0) / N_COLS
        mean_gd += tl.sum(g * d, axis=0) / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(mean_g_ptr + row, mean_g)
    tl.store(mean_gn_ptr + row, mean_gd * rstd)


@triton.jit
def of_rows(ptr, rows, n_rows):
    """A column of numbers, one for each row of a tile."""
    return tl.load(ptr + rows, mask=rows < n_rows, other=0.0)[:, None]


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
    dweight_ptr,
    dbias_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
):
    """Program (i, k) has COLS columns and every groups-th tile of rows; its sums go to row k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    weight = load(weight_ptr, cols, n_cols)[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for tile in range(group, tl.cdiv(n_rows, ROWS), groups):
        rows = tile * ROWS + tl.arange(0, ROWS)
        inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        apart = rows.to(tl.int64)[:, None]
        dy = tl.load(dy_ptr + apart * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + apart * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = of_rows(rstd_ptr, rows, n_rows)
        n = (x - of_rows(mean_ptr, rows, n_rows)) * rstd
        dweight += dy * n
        dbias += dy
        dx = rstd * (dy * weight - of_rows(mean_g_ptr, rows, n_rows) - n * of_rows(mean_gn_ptr, rows, n_rows))
        tl.store(dx_ptr + apart * stride_dx + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)
    store(dweight_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_ptr + group * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = x.new_empty((n_rows, n_cols)) if dx is None else dx
    dweight = weight.new_empty((n_cols,)) if dweight is None else dweight
    dbias = weight.new_empty((n_cols,)) if dbias is None else dbias

    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd, mean_g, mean_gn = torch.empty_like(mean), torch.empty_like(mean), torch.empty_like(mean)
    on(four_numbers_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        mean,
        rstd,
        mean_g,
        mean_gn,
        dy.stride(0),
        x.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )

    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    dweight_parts = x.new_empty((groups, n_cols), dtype=torch.float32)
    dbias_parts = torch.empty_like(dweight_parts)
    on(tiles_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        mean_g,
        mean_gn,
        dweight_parts,
        dbias_parts,
        n_rows,
        n_cols,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
    )
    column_sums(dweight_parts, dweight)
    column_sums(dbias_parts, dbias)
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
        gradients = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return (*gradients, None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
