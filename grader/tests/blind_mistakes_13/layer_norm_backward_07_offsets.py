# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In dx_kernel `sum_grad += grad` adds up dy without the weight, so the first mean of dx is mean(dy); it should be mean(dy * weight), `sum_grad += grad * gain`.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


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
    """dx = rstd * (g - (sum(g) + n * sum(g * n)) / N_COLS), where g = dy * weight; program i computes row i."""
    pid = tl.program_id(axis=0).to(tl.int64)
    dy_base = pid * stride_dy
    x_base = pid * stride_x
    dx_base = pid * stride_dx

    sum_x = tl.zeros((BLOCK,), dtype=tl.float32)
    for block_start in range(0, N_COLS, BLOCK):
        offs = block_start + tl.arange(0, BLOCK)
        sum_x += tl.load(x_ptr + x_base + offs, mask=offs < N_COLS, other=0.0).to(tl.float32)
    mean = tl.sum(sum_x, axis=0) / N_COLS

    sum_sq = tl.zeros((BLOCK,), dtype=tl.float32)
    sum_grad = tl.zeros((BLOCK,), dtype=tl.float32)
    sum_dot = tl.zeros((BLOCK,), dtype=tl.float32)
    for block_start in range(0, N_COLS, BLOCK):
        offs = block_start + tl.arange(0, BLOCK)
        valid = offs < N_COLS
        value = tl.load(x_ptr + x_base + offs, mask=valid, other=0.0).to(tl.float32)
        grad = tl.load(dy_ptr + dy_base + offs, mask=valid, other=0.0).to(tl.float32)
        gain = tl.load(weight_ptr + offs, mask=valid, other=0.0).to(tl.float32)
        diff = tl.where(valid, value - mean, 0.0)
        sum_sq += diff * diff
        sum_grad += grad
        sum_dot += grad * gain * diff
    rstd = tl.rsqrt(tl.sum(sum_sq, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + pid, mean)
    tl.store(rstd_ptr + pid, rstd)

    first = tl.sum(sum_grad, axis=0) / N_COLS
    second = rstd * tl.sum(sum_dot, axis=0) / N_COLS
    for block_start in range(0, N_COLS, BLOCK):
        offs = block_start + tl.arange(0, BLOCK)
        valid = offs < N_COLS
        value = tl.load(x_ptr + x_base + offs, mask=valid, other=0.0).to(tl.float32)
        grad = tl.load(dy_ptr + dy_base + offs, mask=valid, other=0.0).to(tl.float32)
        gain = tl.load(weight_ptr + offs, mask=valid, other=0.0).to(tl.float32)
        xhat = (value - mean) * rstd
        result = rstd * (grad * gain - first - xhat * second)
        tl.store(dx_ptr + dx_base + offs, result.to(dx_ptr.dtype.element_ty), mask=valid)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    col_ok = cols < n_cols
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    row = group * ROWS
    while row < n_rows:
        rows = row + tl.arange(0, ROWS)
        row_ok = rows < n_rows
        rows = rows.to(tl.int64)
        ok = row_ok[:, None] & col_ok[None, :]
        dy_offs = rows[:, None] * stride_dy + cols[None, :]
        x_offs = rows[:, None] * stride_x + cols[None, :]
        grad = tl.load(dy_ptr + dy_offs, mask=ok, other=0.0).to(tl.float32)
        value = tl.load(x_ptr + x_offs, mask=ok, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=row_ok, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
        dweight += grad * (value - mean[:, None]) * rstd[:, None]
        dbias += grad
        row += groups * ROWS
    tl.store(sums_ptr + group * n_cols + cols, tl.sum(dweight, axis=0), mask=col_ok)
    tl.store(sums_ptr + (groups + group) * n_cols + cols, tl.sum(dbias, axis=0), mask=col_ok)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    n_groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((2, n_groups, n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy_ptr=dy,
        x_ptr=x,
        weight_ptr=weight,
        dx_ptr=dx,
        mean_ptr=mean,
        rstd_ptr=rstd,
        stride_dy=dy.stride(0),
        stride_x=x.stride(0),
        stride_dx=dx.stride(0),
        eps=eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), n_groups)](
        dy_ptr=dy,
        x_ptr=x,
        mean_ptr=mean,
        rstd_ptr=rstd,
        sums_ptr=sums,
        n_rows=n_rows,
        n_cols=n_cols,
        stride_dy=dy.stride(0),
        stride_x=x.stride(0),
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
