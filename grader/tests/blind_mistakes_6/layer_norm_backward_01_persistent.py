# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | dx_kernel unpacks row_sums as squares, sum_gd, sum_g, but the helper returns the sums of d * d, g, g * d. The order must be squares, sum_g, sum_gd.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


PROGRAMS = 256  # of dx_kernel; each takes every PROGRAMS-th row


@triton.jit
def scaled(dy_row, weight_ptr, cols, n_cols):
    """g, the gradient behind the scale of the weight."""
    return load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)


@triton.jit
def row_mean(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, N_COLS, BLOCK):
        acc += load(x_row, c + tl.arange(0, BLOCK), N_COLS)
    return tl.sum(acc, axis=0) / N_COLS


@triton.jit
def row_sums(dy_row, x_row, weight_ptr, mean, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of d * d, g and g * d."""
    dd = tl.zeros((BLOCK,), dtype=tl.float32)
    gs = tl.zeros((BLOCK,), dtype=tl.float32)
    gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, N_COLS, BLOCK):
        cols = c + tl.arange(0, BLOCK)
        d = load(x_row, cols, N_COLS, mean) - mean
        g = scaled(dy_row, weight_ptr, cols, N_COLS)
        dd += d * d
        gs += g
        gd += g * d
    return tl.sum(dd, axis=0), tl.sum(gs, axis=0), tl.sum(gd, axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, n_rows, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of the rows r, r + PROGRAMS, ..., and their mean and rstd."""
    for r in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(r, tl.int64)
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        dx_row = dx_ptr + row * stride_dx
        mean = row_mean(x_row, N_COLS, BLOCK)
        squares, sum_gd, sum_g = row_sums(dy_row, x_row, weight_ptr, mean, N_COLS, BLOCK)
        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        tl.store(mean_ptr + row, mean)
        tl.store(rstd_ptr + row, rstd)
        slope = sum_gd * rstd * rstd / N_COLS
        for c in range(0, N_COLS, BLOCK):
            cols = c + tl.arange(0, BLOCK)
            g = scaled(dy_row, weight_ptr, cols, N_COLS)
            d = load(x_row, cols, N_COLS) - mean
            store(dx_row, cols, N_COLS, (g - sum_g / N_COLS - d * slope) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of the two matrices
    in sums, (2, groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    lanes = tl.arange(0, ROWS)
    column_ok = cols[None, :] < n_cols
    first = group * ROWS
    while first < n_rows:
        rows = first.to(tl.int64) + lanes
        row_ok = rows < n_rows
        both_ok = row_ok[:, None] & column_ok
        shift = tl.load(mean_ptr + rows, mask=row_ok, other=0.0)
        scale = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
        x = tl.load(x_ptr + (rows * stride_x)[:, None] + cols[None, :], mask=both_ok, other=0.0)
        dy = tl.load(dy_ptr + (rows * stride_dy)[:, None] + cols[None, :], mask=both_ok, other=0.0)
        dbias += dy.to(tl.float32)
        dweight += dy.to(tl.float32) * ((x.to(tl.float32) - shift[:, None]) * scale[:, None])
        first += groups * ROWS
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
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    dx_launch = on(dx_kernel, x)[(min(n_rows, PROGRAMS),)]
    dx_launch(
        dy, x, weight, dx, mean, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )
    # triton.cdiv takes the constexpr COLS as it is.
    grid = (triton.cdiv(n_cols, COLS), sums.shape[1])
    on(weight_gradient_kernel, x)[grid](dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
