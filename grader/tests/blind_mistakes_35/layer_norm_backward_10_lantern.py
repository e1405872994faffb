# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def deviation(x_row, mean, cols, N_COLS: tl.constexpr):
    """Return x - mean at these columns, and 0 where the row has none."""
    return tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)


@triton.jit
def inflow(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """Return dy * weight at these columns: what reaches the normalised row. It is 0 where the row has none."""
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


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

    n is the normalised row, (x - mean) * rstd. Mean and rstd of row i go to element i of two fp32 vectors.
    Each lane adds up its own columns of all blocks; the lanes are joined behind the loops.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    in_x = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        in_x += load(x_row, start + lane, N_COLS)
    mean = tl.sum(in_x, axis=0) / N_COLS

    in_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    in_g = tl.zeros((BLOCK,), dtype=tl.float32)
    in_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        d = deviation(x_row, mean, start + lane, N_COLS)
        g = inflow(dy_row, weight_ptr, start + lane, N_COLS)
        in_dd += d * d
        in_g += g
        in_gd += g * d
    variance = tl.sum(in_dd, axis=0) / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g = tl.sum(in_g, axis=0) / N_COLS
    mean_gn = rstd * tl.sum(in_gd, axis=0) / N_COLS
    for start in range(0, N_COLS, BLOCK):
        n = deviation(x_row, mean, start + lane, N_COLS) * rstd
        g = inflow(dy_row, weight_ptr, start + lane, N_COLS)
        store(dx_row, start + lane, N_COLS, rstd * ((g - mean_g) - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, weight_sums_ptr, bias_sums_ptr, n_rows, n_cols, stride_dy, stride_x
):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k.

    A group is a run of neighbouring rows, whole tiles of ROWS, all runs of one length; the last ones may be
    shorter or empty, and then their sums are 0. Those of group k go to row k of two matrices, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    tiles = (n_rows + ROWS - 1) // ROWS
    run = (tiles + groups - 1) // groups * ROWS
    end = tl.minimum(n_rows, group * run + run)

    with_n = tl.zeros((ROWS, COLS), dtype=tl.float32)
    alone = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * run, end, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        there = rows < end
        inside = there & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=there, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=there, other=0.0)
        with_n += dy * ((x - mean) * rstd)
        alone += dy
    store(weight_sums_ptr + group * n_cols, cols, n_cols, tl.sum(with_n, axis=0))
    store(bias_sums_ptr + group * n_cols, cols, n_cols, tl.sum(alone, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    weight_sums, bias_sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)

    per_row = on(dx_kernel, x)[(n_rows,)]
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    per_row(dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))

    per_group = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    per_group(dy, x, mean, rstd, weight_sums, bias_sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    for sums, result in ((weight_sums, dweight), (bias_sums, dbias)):
        column_sums(sums, result)
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        dx, dweight, dbias = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
