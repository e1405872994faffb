# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op, mean_and_rstd
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # programs that share the rows of a stripe of columns
ROWS, COLS = 32, 64


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
    """dx of row i; stats, (2, n_rows) fp32, gets the mean of the row and 1 / sqrt(variance + eps)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, x_row = dy_ptr + row * stride_dy, x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)

    # Past the end of the row dy is 0, and so is all that is added.
    sum_g, sum_gn = 0.0, 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        sum_g += tl.sum(g, axis=0)
        sum_gn += tl.sum(g * ((load(x_row, cols, N_COLS) - mean) * rstd), axis=0)

    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + tl.num_programs(axis=0) + row, rstd)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - (sum_g + n * sum_gn) / N_COLS))


@triton.jit
def stripe_kernel(
    dy_ptr,
    x_ptr,
    stats_ptr,
    of_weight_ptr,
    of_bias_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Sums of dy * n and of dy down a stripe of WIDE columns, over every groups-th tile of HIGH rows."""
    group, groups = tl.program_id(axis=1), tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    of_weight = tl.zeros((HIGH, WIDE), dtype=tl.float32)
    of_bias = tl.zeros((HIGH, WIDE), dtype=tl.float32)
    for tile in range(group, tl.cdiv(n_rows, HIGH), groups):
        rows = (tile * HIGH + tl.arange(0, HIGH)).to(tl.int64)[:, None]
        there = (rows < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + (rows * stride_dy + cols[None, :]), mask=there, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + (rows * stride_x + cols[None, :]), mask=there, other=0.0).to(tl.float32)
        mean = tl.load(stats_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(stats_ptr + n_rows + rows, mask=rows < n_rows, other=0.0)
        of_weight += dy * ((x - mean) * rstd)
        of_bias += dy
    at = group.to(tl.int64) * n_cols
    store(of_weight_ptr + at, cols, n_cols, tl.sum(of_weight, axis=0))
    store(of_bias_ptr + at, cols, n_cols, tl.sum(of_bias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape

    stats = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    by_row = on(dx_kernel, x)[(n_rows,)]
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    by_row(dy, x, weight, dx, stats, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))

    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    of_weight = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    of_bias = torch.empty_like(of_weight)
    by_stripe = on(stripe_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    by_stripe(dy, x, stats, of_weight, of_bias, n_rows, n_cols, *strides[:2], HIGH=ROWS, WIDE=COLS)
    column_sums(of_weight, dweight)
    column_sums(of_bias, dbias)
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
        return (*backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
