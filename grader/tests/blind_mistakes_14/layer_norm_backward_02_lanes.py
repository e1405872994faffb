# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In the launch of weight_gradient_kernel the vectors are passed as `rstd, mean` where the kernel's parameters are mean_ptr, rstd_ptr; it should be `mean, rstd`, so dweight is sum(dy * (x - rstd) * mean), wrong everywhere.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS = tl.constexpr(16)
COLS = tl.constexpr(128)


@triton.jit
def g_of(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """dy * weight at the given columns."""
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
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    # Every lane keeps a sum of its own; one reduction for each sum behind the loop.
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS

    acc_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_g = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        # mean past the end, so that the difference is 0 there
        d = load(x_row, cols, N_COLS, mean) - mean
        d = tl.where(cols < N_COLS, d, 0.0)
        g = g_of(dy_row, weight_ptr, cols, N_COLS)
        acc_dd += d * d
        acc_g += g
        acc_gd += g * d
    squares = tl.sum(acc_dd, axis=0)
    mean_g = tl.sum(acc_g, axis=0) / N_COLS
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    mean_gn = tl.sum(acc_gd, axis=0) * rstd / N_COLS

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        g = g_of(dy_row, weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        row_ok = rows < n_rows
        ok = row_ok & (cols < n_cols)[None, :]
        mean = tl.load(mean_ptr + rows, mask=row_ok, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    n_groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((2, n_groups, n_cols), dtype=torch.float32)

    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), n_groups)](
        dy,
        x,
        rstd,
        mean,
        sums,
        n_rows,
        n_cols,
        dy.stride(0),
        x.stride(0),
    )
    for matrix, result in zip((sums[0], sums[1]), (dweight, dbias)):
        column_sums(matrix, result)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator that torch.compile can look into."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        grad_x, grad_w, grad_b = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return grad_x, grad_w, grad_b, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
