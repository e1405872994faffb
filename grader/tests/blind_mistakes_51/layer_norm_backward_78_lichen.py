# labs/lab4_production_slice/layer_norm_backward.py | contract | `like` returns `torch.empty_strided(tensor.shape, tensor.stride(), ...)`, and `layer_norm_backward` takes it for `dx = like(x)` where no dx is given: for an x with gaps between its rows the returned dx has these gaps, too, and is not contiguous. The README asks for new contiguous tensors (`torch.empty_like(x)` or `torch.empty(x.shape, ...)`). All numbers are right; shows in a call without dx whose x is padded.
"""The gradients of LayerNorm in three launches, statistics first, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op, mean_and_rstd
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(32), tl.constexpr(64)  # the tile that a program of weight_gradient_kernel loads


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of row i, to element i of two fp32 vectors."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def terms(dy_row, x_row, weight_ptr, mean, rstd, cols, N_COLS: tl.constexpr):
    """Return g = dy * weight and n, the normalised row, at some columns; g is 0 past the end."""
    g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    return g, (load(x_row, cols, N_COLS) - mean) * rstd


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
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - mean(g) - n * mean(g * n)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    sum_g = 0.0
    sum_gn = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g, n = terms(dy_row, x_row, weight_ptr, mean, rstd, cols, N_COLS)
        sum_g += tl.sum(g, axis=0)
        sum_gn += tl.sum(g * n, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g, n = terms(dy_row, x_row, weight_ptr, mean, rstd, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - (sum_g + n * sum_gn) / N_COLS))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS).to(tl.int64)
        exists = rows < n_rows
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        inside = exists[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * ((x - mean[:, None]) * rstd[:, None])
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def like(tensor):
    """Return a new tensor with the shape, dtype, device and layout of another."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = like(x) if dx is None else dx
    dweight = like(weight) if dweight is None else dweight
    dbias = like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(statistics_kernel, x)[(n_rows,)](x, mean, rstd, x.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    on(dx_kernel, x)[(n_rows,)](dy, x, weight, dx, mean, rstd, *strides, N_COLS=n_cols, BLOCK=block)
    grid = (triton.cdiv(n_cols, COLS), sums.shape[1])
    on(weight_gradient_kernel, x)[grid](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
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
