# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | Skeleton layer_norm_backward.py. (1) `dbias += g` in `tile_kernel` should be `dbias += dy`, for g has the weight in it: dbias (alone) is wrong in all cases. (2) `weight = load(weight_ptr, lanes, N_COLS)` in `row_kernel` stands before the loop and has the columns of block 0 only; `g = load(dy_row, cols, N_COLS) * weight` needs `load(weight_ptr, cols, N_COLS)` in the loop: mean(g) and mean(g * n), and with them dx (alone), are wrong where a row is longer than one block, n_cols > 16384.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator.

Both kernels read x and dy once each where a row fits one block: row_kernel finds four numbers for each row,
tile_kernel then has all that an element of dx needs, and adds up the other two gradients on the way.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile of tile_kernel


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
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
    """Store mean, rstd, mean(g) and mean(g * n) of row i, with g = dy * weight, in element i of four vectors."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    lanes = tl.arange(0, BLOCK)
    weight = load(weight_ptr, lanes, N_COLS)
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
        g = load(dy_row, cols, N_COLS) * weight
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(mean_g_ptr + row, sum_g / N_COLS)
    tl.store(mean_gn_ptr + row, sum_gd * rstd / N_COLS)


@triton.jit
def tile_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    mean_g_ptr,
    mean_gn_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
):
    """dx of COLS columns of a group of rows, and their sums of dy * n and of dy; program (i, k) has group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    weight = load(weight_ptr, cols, n_cols)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        mean_g = tl.load(mean_g_ptr + rows, mask=rows < n_rows, other=0.0)
        mean_gn = tl.load(mean_gn_ptr + rows, mask=rows < n_rows, other=0.0)
        n = (x - mean) * rstd
        g = dy * weight
        dx = rstd * (g - mean_g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += dy * n
        dbias += g
    at = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    store(sums_ptr + group * n_cols, at, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, at, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    of_rows = torch.empty((4, n_rows), device=x.device, dtype=torch.float32)
    mean, rstd, mean_g, mean_gn = of_rows
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    launch = on(row_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, mean, rstd, mean_g, mean_gn, dy.stride(0), x.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    launch = on(tile_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[1])]
    launch(
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
