# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | columns_kernel takes g = dy * weight from the helper that dx uses too and adds `g * n` to dweight; dweight is the sum of dy * n, without weight. Shows in dweight wherever weight is not 1; dx and dbias are right.
"""Gradients of LayerNorm: one helper loads n and g for all kernels."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

TALL, WIDE = 32, 32  # the tile of columns_kernel


@triton.jit
def norm_and_gradient(dy, x, weight, mean, rstd):
    """Return n, the normalised x, and g, the gradient for n."""
    return (x - mean) * rstd, dy * weight


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def moments_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of each row."""
    row = tl.program_id(0)
    x_row = x_ptr + row.to(tl.int64) * stride_x
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        acc += d * d
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, tl.rsqrt(tl.sum(acc, axis=0) / N_COLS + tl.cast(eps, tl.float32)))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rows_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dx_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of a row."""
    row = tl.program_id(0)
    long = row.to(tl.int64)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    sum_g = 0.0
    sum_gn = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n, g = norm_and_gradient(
            load(dy_ptr + long * stride_dy, cols, N_COLS),
            load(x_ptr + long * stride_x, cols, N_COLS),
            load(weight_ptr, cols, N_COLS),
            mean,
            rstd,
        )
        sum_g += tl.sum(g, axis=0)
        sum_gn += tl.sum(g * n, axis=0)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n, g = norm_and_gradient(
            load(dy_ptr + long * stride_dy, cols, N_COLS),
            load(x_ptr + long * stride_x, cols, N_COLS),
            load(weight_ptr, cols, N_COLS),
            mean,
            rstd,
        )
        store(dx_ptr + long * stride_dx, cols, N_COLS, rstd * (g - (sum_g + n * sum_gn) / N_COLS))


@triton.jit
def columns_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    dweight_ptr,
    dbias_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """dweight and dbias of WIDE columns, over all rows."""
    cols = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    weight = load(weight_ptr, cols, n_cols)
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    dbias = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(0, n_rows, TALL):
        rows = start + tl.arange(0, TALL)
        mask = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        long = rows.to(tl.int64)[:, None]
        dy = tl.load(dy_ptr + long * stride_dy + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + long * stride_x + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        mean = load(mean_ptr, rows, n_rows)
        rstd = load(rstd_ptr, rows, n_rows)
        n, g = norm_and_gradient(dy, x, weight[None, :], mean[:, None], rstd[:, None])
        dweight += g * n
        dbias += dy
    store(dweight_ptr, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_ptr, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients for x, weight and bias."""
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    block = block_of(n_cols)
    on(moments_kernel, x)[(n_rows,)](x, mean, rstd, x.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    on(rows_kernel, x)[(n_rows,)](
        dy, x, weight, mean, rstd, dx, dy.stride(0), x.stride(0), dx.stride(0), N_COLS=n_cols, BLOCK=block
    )
    launch = on(columns_kernel, x)[(triton.cdiv(n_cols, WIDE),)]
    launch(
        dy, x, weight, mean, rstd, dweight, dbias, n_rows, n_cols, dy.stride(0), x.stride(0), TALL=TALL, WIDE=WIDE
    )
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """LayerNorm with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable LayerNorm."""
    return LayerNorm.apply(x, weight, bias, eps)
