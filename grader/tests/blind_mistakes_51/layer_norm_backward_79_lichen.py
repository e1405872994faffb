# labs/lab4_production_slice/layer_norm_backward.py | right | A first kernel stores four numbers for each row (mean, rstd, mean(g), mean(g * n)), two rows a program and with sums for each lane; a second kernel walks in columns over groups of rows, and both stores dx and adds up dweight and dbias, so dx is computed by tiles of 16 x 128.
"""The gradients of LayerNorm: four numbers for each row first, then dx and the sums over rows together."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile of gradient_kernel
HEIGHT = tl.constexpr(2)  # rows of a program of row_kernel
WIDTH = 1024  # columns that such a program takes at a time, at most


@triton.jit
def tile_of(pointer, rows, cols, stride, inside):
    """Return a tile of a matrix in fp32, and 0 where it has no such element."""
    return tl.load(pointer + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def vector_of(pointer, cols, n_cols):
    """Return elements of a vector in fp32, and 0 past its end."""
    return tl.load(pointer + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, mean_g_ptr, mean_gn_ptr, n_rows, stride_dy, stride_x, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Mean, rstd, mean(g) and mean(g * n) of HEIGHT rows, to four fp32 vectors.

    Sums are kept for each column of the block, and reduced once, behind each loop.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    exists = rows < n_rows
    sums = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        sums += tile_of(x_ptr, rows, cols, stride_x, exists & (cols < N_COLS))
    mean = tl.sum(sums, axis=1, keep_dims=True) / N_COLS

    squares = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    sums_g = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    sums_gd = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists & (cols < N_COLS)
        d = tl.where(inside, tile_of(x_ptr, rows, cols, stride_x, inside) - mean, 0.0)
        g = tile_of(dy_ptr, rows, cols, stride_dy, inside) * vector_of(weight_ptr, cols, N_COLS)
        squares += d * d
        sums_g += g
        sums_gd += g * d
    variance = tl.sum(squares, axis=1, keep_dims=True) / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + rows, mean, mask=exists)
    tl.store(rstd_ptr + rows, rstd, mask=exists)
    tl.store(mean_g_ptr + rows, tl.sum(sums_g, axis=1, keep_dims=True) / N_COLS, mask=exists)
    tl.store(mean_gn_ptr + rows, tl.sum(sums_gd, axis=1, keep_dims=True) * rstd / N_COLS, mask=exists)


@triton.jit
def gradient_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, mean_g_ptr, mean_gn_ptr, sums_ptr, n_rows, n_cols,
    stride_dy, stride_x, stride_dx,
):  # fmt: skip
    """dx of COLS columns of a group of rows, and the sums of dy * n and dy over them, by program (i, k)."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    weight = vector_of(weight_ptr, cols, n_cols)[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        exists = rows < n_rows
        inside = exists & (cols[None, :] < n_cols)
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        mean_g = tl.load(mean_g_ptr + rows, mask=exists, other=0.0)
        mean_gn = tl.load(mean_gn_ptr + rows, mask=exists, other=0.0)
        dy = tile_of(dy_ptr, rows, cols[None, :], stride_dy, inside)
        n = (tile_of(x_ptr, rows, cols[None, :], stride_x, inside) - mean) * rstd
        dx = rstd * (dy * weight - mean_g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += dy * n
        dbias += dy
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
    mean, rstd, mean_g, mean_gn = torch.empty((4, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(row_kernel, x)[(triton.cdiv(n_rows, HEIGHT),)](
        dy, x, weight, mean, rstd, mean_g, mean_gn, n_rows, dy.stride(0), x.stride(0), eps,
        N_COLS=n_cols, BLOCK=min(block_of(n_cols), WIDTH),
    )  # fmt: skip
    on(gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[1])](
        dy, x, weight, dx, mean, rstd, mean_g, mean_gn, sums, n_rows, n_cols,
        dy.stride(0), x.stride(0), dx.stride(0),
    )  # fmt: skip
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
