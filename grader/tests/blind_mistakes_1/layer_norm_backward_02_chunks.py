# lab4_production_slice/layer_norm_backward.py | corner | layer_norm_backward deals the rows out as contiguous chunks of `chunk = n_rows // groups` rows (rounded down instead of up), so the last n_rows % groups rows are in no group and are missing in dweight and dbias; dx is right | "dweight = sum of dy * n over rows, dbias = sum of dy"; shows only where n_rows is no multiple of groups = min(32, cdiv(n_rows, 16)), e.g. 17, 40 or 511 rows (not 1 to 16, 48, 512)
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
def row_mean(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    s = 0.0
    for c in range(0, N_COLS, BLOCK):
        s += tl.sum(load(x_row, c + tl.arange(0, BLOCK), N_COLS), axis=0)
    return s / N_COLS


@triton.jit
def d_and_g(x_row, dy_row, weight_ptr, cols, mean, N_COLS: tl.constexpr):
    d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
    return d, load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


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
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    mean = row_mean(x_row, N_COLS, BLOCK)
    sum_dd, sum_g, sum_gd = 0.0, 0.0, 0.0
    for c in range(0, N_COLS, BLOCK):
        d, g = d_and_g(x_row, dy_row, weight_ptr, c + tl.arange(0, BLOCK), mean, N_COLS)
        sum_dd += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(sum_dd / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for c in range(0, N_COLS, BLOCK):
        cols = c + tl.arange(0, BLOCK)
        d, g = d_and_g(x_row, dy_row, weight_ptr, cols, mean, N_COLS)
        inner = sum_g + d * (rstd * rstd * sum_gd)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - inner / N_COLS))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_cols, chunk, stride_dy, stride_x
):
    """Program (i, k): COLS columns of the rows k * chunk up to (k + 1) * chunk."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    begin = group * chunk
    end = begin + chunk
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(begin, end, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < end) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < end, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < end, other=0.0)
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
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    chunk = n_rows // groups
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_cols, chunk, dy.stride(0), x.stride(0)
    )
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
