# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator.

One sweep over a row gives all sums: each block has sums about its own mean, and these are joined with those of the blocks
before, as Chan, Golub and LeVeque do for the variance. The same shift works for the sum of g * (x - mean).
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

SLABS = 64  # at most; a slab is a number of tiles of rows that follow one another
HEIGHT = 16
STRIP = 64


@triton.jit
def sums_of_block(dy_row, x_row, weight_ptr, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Number of columns, mean, and sums of d * d, g and g * d of the block at `start`, d from the block's mean."""
    cols = start + tl.arange(0, BLOCK)
    exists = cols < N_COLS
    count = tl.sum(tl.where(exists, 1.0, 0.0), axis=0)
    x = load(x_row, cols, N_COLS)
    g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    mean = tl.sum(x, axis=0) / count
    d = tl.where(exists, x - mean, 0.0)
    return count, mean, tl.sum(d * d, axis=0), tl.sum(g, axis=0), tl.sum(g * d, axis=0)


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
    """dx = rstd * (g - (sum(g) + n * sum(g * n)) / N_COLS), where g = dy * weight; program i computes row i.

    Mean and rstd of row i go to element i of two fp32 vectors.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    seen, mean, squares, sum_g, sum_gd = sums_of_block(dy_row, x_row, weight_ptr, 0, N_COLS, BLOCK)
    for start in range(BLOCK, N_COLS, BLOCK):
        count, mean_b, squares_b, sum_g_b, sum_gd_b = sums_of_block(
            dy_row, x_row, weight_ptr, start, N_COLS, BLOCK
        )
        both = seen + count
        apart = mean_b - mean
        old = seen / both
        new = count / both
        squares += squares_b + apart * apart * count * old
        # The old mean moves by apart * new, the mean of this block by -apart * old.
        sum_gd += sum_gd_b + apart * (old * sum_g_b - new * sum_g)
        sum_g += sum_g_b
        mean += apart * new
        seen = both

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    sum_gn = rstd * sum_gd
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - (sum_g + n * sum_gn) / N_COLS))


@triton.jit
def slab_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    for_weight_ptr,
    for_bias_ptr,
    n_rows,
    n_cols,
    tiles,
    stride_dy,
    stride_x,
    HEIGHT: tl.constexpr,
    STRIP: tl.constexpr,
):
    """Sums over a slab of dy * n and of dy; program (i, k) adds STRIP columns of slab k.

    A slab has `tiles` tiles of HEIGHT rows. The sums go to row k of two matrices, (slabs, n_cols) fp32.
    """
    slab = tl.program_id(axis=1).to(tl.int64)
    cols = tl.program_id(axis=0) * STRIP + tl.arange(0, STRIP)
    rows = slab * tiles * HEIGHT + tl.arange(0, HEIGHT)[:, None]

    sum_dyn = tl.zeros((HEIGHT, STRIP), dtype=tl.float32)
    sum_dy = tl.zeros((HEIGHT, STRIP), dtype=tl.float32)
    for _ in range(0, tiles):
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        sum_dyn += dy * ((x - mean) * rstd)
        sum_dy += dy
        rows += HEIGHT
    store(for_weight_ptr + slab * n_cols, cols, n_cols, tl.sum(sum_dyn, axis=0))
    store(for_bias_ptr + slab * n_cols, cols, n_cols, tl.sum(sum_dy, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape

    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
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

    tiles_of_all = triton.cdiv(n_rows, HEIGHT)
    tiles = triton.cdiv(tiles_of_all, SLABS)
    slabs = triton.cdiv(tiles_of_all, tiles)
    for_weight = x.new_empty((slabs, n_cols), dtype=torch.float32)
    for_bias = x.new_empty((slabs, n_cols), dtype=torch.float32)
    on(slab_kernel, x)[(triton.cdiv(n_cols, STRIP), slabs)](
        dy,
        x,
        mean,
        rstd,
        for_weight,
        for_bias,
        n_rows,
        n_cols,
        tiles,
        dy.stride(0),
        x.stride(0),
        HEIGHT=HEIGHT,
        STRIP=STRIP,
    )
    column_sums(for_weight, dweight)
    column_sums(for_bias, dbias)
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
