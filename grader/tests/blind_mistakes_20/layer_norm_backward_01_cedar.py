# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | weight_gradient_kernel loads mean and rstd as two vectors one behind the other (`stats_ptr + rows`, `stats_ptr + n_rows + rows`), but dx_kernel stores them in pairs at 2 * row and 2 * row + 1; it should load at `2 * rows` and `2 * rows + 1`. dweight is wrong for more than one row; dx and dbias are right.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    stats_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx for row i in program i; mean and rstd of the row are kept for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS

    # All three sums stay spread over the lanes until the row is through.
    acc_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_g = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        acc_dd += d * d
        acc_g += g
        acc_gd += g * d
    rstd = tl.rsqrt(tl.sum(acc_dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(stats_ptr + 2 * row, mean)
    tl.store(stats_ptr + 2 * row + 1, rstd)
    mean_g = tl.sum(acc_g, axis=0) / N_COLS
    mean_gn = rstd * tl.sum(acc_gd, axis=0) / N_COLS

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, tiles_per_group, stride_dy, stride_x
):
    """Sums over a group of rows; a group has tiles_per_group tiles of ROWS rows, one behind the other."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for t in range(0, tiles_per_group):
        first = (group * tiles_per_group + t) * ROWS
        rows = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(stats_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(stats_ptr + n_rows + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    tiles = triton.cdiv(n_rows, ROWS)
    groups = min(GROUPS, tiles)
    stats = torch.empty((n_rows, 2), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)

    launch = on(dx_kernel, x)[(n_rows,)]
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    launch(dy, x, weight, dx, stats, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))

    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    launch(dy, x, stats, sums, n_rows, n_cols, triton.cdiv(tiles, groups), dy.stride(0), x.stride(0))
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
