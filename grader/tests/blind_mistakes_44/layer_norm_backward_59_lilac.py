# labs/lab4_production_slice/layer_norm_backward.py | right | Two sweeps for dx instead of three: mean, squares and sum of g * (x - mean) of the blocks are joined as by Chan et al. (the cross sum moves with the mean); groups have neighbouring rows, and a last kernel of its own adds up the groups of dweight and dbias in one launch instead of `column_sums`.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = 16, 128  # the tile that a program of group_sums_kernel loads
FINAL_COLS = 64  # columns of a program that adds up the groups


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
    """dx of row i by program i, in two sweeps; mean and rstd of row i go to element i of two fp32 vectors.

    The first sweep joins the blocks as Chan, Golub and LeVeque do: each has a mean of its own, and sums of
    (x - mean)^2, of g and of g * (x - mean), which move to the mean of all columns so far.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    mean, squares, sum_g, sum_gd = 0.0, 0.0, 0.0, 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        columns = tl.minimum(N_COLS - start, BLOCK).to(tl.float32)
        block_mean = tl.sum(x, axis=0) / columns
        d = tl.where(cols < N_COLS, x - block_mean, 0.0)
        block_g = tl.sum(g, axis=0)
        block_gd = tl.sum(g * d, axis=0)
        apart = block_mean - mean
        part = columns / (start + columns)  # of the columns so far, how many are in this block
        squares += tl.sum(d * d, axis=0) + apart * apart * start * part
        sum_gd += block_gd + apart * ((1.0 - part) * block_g - part * sum_g)
        sum_g += block_g
        mean += apart * part
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g, mean_gn = sum_g / N_COLS, rstd * sum_gd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def group_sums_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    tiles,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums over a group of rows of dy * n and of dy, side by side in sums, (groups, 2, n_cols) fp32.

    Program (i, k) adds COLS columns of group k, which has `tiles` tiles of neighbouring rows.
    """
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = group * tiles * ROWS
    last = tl.minimum(first + tiles * ROWS, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < last)[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < last, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < last, other=0.0)
        dweight += dy * ((x - mean[:, None]) * rstd[:, None])
        dbias += dy
    sums_row = sums_ptr + group * 2 * n_cols
    store(sums_row, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_row + n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def final_sums_kernel(sums_ptr, dweight_ptr, dbias_ptr, groups, n_cols, AT_ONCE: tl.constexpr, COLS: tl.constexpr):
    """Add up the groups: programs (i, 0) for dweight, programs (i, 1) for dbias."""
    which = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    numbers = tl.arange(0, AT_ONCE)
    inside = (numbers < groups)[:, None] & (cols < n_cols)[None, :]
    places = (numbers.to(tl.int64) * 2 + which)[:, None] * n_cols + cols[None, :]
    total = tl.sum(tl.load(sums_ptr + places, mask=inside, other=0.0), axis=0)
    if which == 0:
        store(dweight_ptr, cols, n_cols, total)
    else:
        store(dbias_ptr, cols, n_cols, total)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty(x.shape, device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    tiles = triton.cdiv(n_rows, ROWS * GROUPS)  # of a group
    groups = triton.cdiv(n_rows, ROWS * tiles)
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, 2, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(group_sums_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, tiles, dy.stride(0), x.stride(0), ROWS=ROWS, COLS=COLS
    )
    on(final_sums_kernel, x)[(triton.cdiv(n_cols, FINAL_COLS), 2)](
        sums, dweight, dbias, groups, n_cols, AT_ONCE=GROUPS, COLS=FINAL_COLS
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
