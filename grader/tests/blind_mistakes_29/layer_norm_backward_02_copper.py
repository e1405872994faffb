# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) In dx_kernel the first mean is taken of dy and not of g = dy * weight: `sum_g += tl.sum(dy, axis=0)` should add dy * w; dx is wrong in nearly every case (all but weights of 1). (2) LayerNorm.backward hands the constant 1e-5 to backward_op and not the eps of the forward call, which forward should keep as ctx.eps: dx and dweight of layer_norm are wrong with another eps (0 or 1), y and dbias are right.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def row_mean(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of one row, in fp32."""
    cols = tl.arange(0, BLOCK)
    acc = 0.0
    for _ in range(0, N_COLS, BLOCK):
        acc += tl.sum(load(x_row, cols, N_COLS), axis=0)
        cols += BLOCK
    return acc / N_COLS


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
    """Program i computes row i of dx and stores mean and rstd of row i of x."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    mean = row_mean(x_row, N_COLS, BLOCK)

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        w = load(weight_ptr, cols, N_COLS)
        d = tl.where(cols < N_COLS, x - mean, 0.0)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(dy, axis=0)
        sum_gd += tl.sum(dy * w * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    sum_gn = sum_gd * rstd
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dx = rstd * (g - (sum_g + n * sum_gn) / N_COLS)
        store(dx_row, cols, N_COLS, dx)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Program (i, k) adds up COLS columns of dy * n and of dy over the rows of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)

    dweight = tl.zeros((ROWS, COLS), tl.float32)
    dbias = tl.zeros((ROWS, COLS), tl.float32)
    for begin in range(group * ROWS, n_rows, groups * ROWS):
        rows = begin + tl.arange(0, ROWS)[:, None].to(tl.int64)
        row_ok = rows < n_rows
        ok = row_ok & (cols < n_cols)
        mean = tl.load(mean_ptr + rows, mask=row_ok, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=ok, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=ok, other=0.0).to(tl.float32)
        dweight += dy * (x - mean) * rstd
        dbias += dy

    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    if dx is None:
        dx = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)

    launch = on(dx_kernel, x)[(n_rows,)]
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    launch(dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))

    grid = (triton.cdiv(n_cols, COLS), sums.shape[1])
    launch = on(weight_gradient_kernel, x)[grid]
    launch(dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        grads = backward_op(dy.contiguous(), x, weight, 1e-5)
        return grads[0], grads[1], grads[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
