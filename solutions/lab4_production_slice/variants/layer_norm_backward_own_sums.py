"""EXPECT PASS from layer_norm_backward and layer_norm: a kernel of its own adds the groups."""

import math

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MAX_GROUPS = 32
TILE_ROWS = 16
TILE_COLS = 128


@triton.jit
def normalised(x, mean, rstd):
    return (x - mean) * rstd


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of a row; its mean and rstd are kept for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, x_row, dx_row = dy_ptr + row * stride_dy, x_ptr + row * stride_x, dx_ptr + row * stride_dx
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS

    squares, sum_g, sum_gd = 0.0, 0.0, 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g = sum_g / N_COLS
    mean_gn = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = normalised(load(x_row, cols, N_COLS), mean, rstd)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def group_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, rows_per_group,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Sums of dy * n and of dy over neighbouring rows; sums is (groups, 2, n_cols)."""
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = group * rows_per_group
    last = tl.minimum(first + rows_per_group, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < last)[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(
            tl.float32
        )
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < last, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < last, other=0.0)
        dweight += dy * normalised(x, mean[:, None], rstd[:, None])
        dbias += dy
    # Not `store` of rows.py: this keeps fp32 and writes two rows of sums.
    sums_row = sums_ptr + group.to(tl.int64) * 2 * n_cols
    tl.store(sums_row + cols, tl.sum(dweight, axis=0), mask=cols < n_cols)
    tl.store(sums_row + n_cols + cols, tl.sum(dbias, axis=0), mask=cols < n_cols)


@triton.jit
def finish_kernel(sums_ptr, dweight_ptr, dbias_ptr, groups, n_cols, GROUPS: tl.constexpr, COLS: tl.constexpr):
    """Add up the groups."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    group = tl.arange(0, GROUPS)[:, None]
    inside = (group < groups) & (cols < n_cols)
    where = sums_ptr + group * (2 * n_cols) + cols
    dweight = tl.sum(tl.load(where, mask=inside, other=0.0), axis=0, keep_dims=True)
    dbias = tl.sum(tl.load(where + n_cols, mask=inside, other=0.0), axis=0, keep_dims=True)
    tl.store(dweight_ptr + cols, dweight.to(dweight_ptr.dtype.element_ty), mask=cols < n_cols)
    tl.store(dbias_ptr + cols, dbias.to(dbias_ptr.dtype.element_ty), mask=cols < n_cols)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients for x, weight and bias."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip

    tiles = math.ceil(n_rows / TILE_ROWS)
    groups = min(tiles, MAX_GROUPS)
    rows_per_group = math.ceil(tiles / groups) * TILE_ROWS
    sums = x.new_empty((groups, 2, n_cols), dtype=torch.float32)
    blocks = math.ceil(n_cols / TILE_COLS)
    on(group_kernel, x)[(blocks, groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), rows_per_group,
        ROWS=TILE_ROWS, COLS=TILE_COLS,
    )  # fmt: skip
    on(finish_kernel, x)[(blocks,)](sums, dweight, dbias, groups, n_cols, GROUPS=MAX_GROUPS, COLS=TILE_COLS)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward."""
    return LayerNorm.apply(x, weight, bias, eps)
