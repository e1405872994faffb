# labs/lab4_production_slice/layer_norm_backward.py | error | In weight_gradient_kernel `mean` and `rstd` are loaded at the 1-D `rows` and used with a (ROWS, COLS) tile without `[:, None]`: (32, 64) and (32,) cannot be broadcast, so the kernel does not compile (ValueError in the interpreter). It should be `mean[:, None]` and `rstd[:, None]`.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import column_sums, load, on, store
from torch.library import triton_op

GROUPS = 48
ROWS, COLS = tl.constexpr(32), tl.constexpr(64)

WIDTHS = [triton.Config({"BLOCK": b}, num_warps=max(4, min(16, b // 512))) for b in (1024, 4096, 16384)]


@triton.jit
def row_mean(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of a row."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    return total / N_COLS


@triton.jit
def block_of_row(x_row, dy_row, weight_ptr, mean, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """x - mean and dy * weight for the columns from `start` on, both 0 past the end of the row."""
    cols = start + tl.arange(0, BLOCK)
    d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
    return d, load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.autotune(configs=WIDTHS, key=["N_COLS"])
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
    """dx = rstd * (g - (sum(g) + n * sum(g * n)) / N_COLS), where g = dy * weight."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    mean = row_mean(x_row, N_COLS, BLOCK)
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        d, g = block_of_row(x_row, dy_row, weight_ptr, mean, start, N_COLS, BLOCK)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N_COLS, BLOCK):
        d, g = block_of_row(x_row, dy_row, weight_ptr, mean, start, N_COLS, BLOCK)
        dx = rstd * (g - (sum_g + (d * rstd) * (sum_gd * rstd)) / N_COLS)
        store(dx_ptr + row * stride_dx, start + tl.arange(0, BLOCK), N_COLS, dx)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        exists = rows < n_rows
        inside = exists[:, None] & (cols < n_cols)[None, :]
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x - mean) * rstd
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
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    strides = dy.stride(0), x.stride(0)
    on(dx_kernel, x)[(n_rows,)](dy, x, weight, dx, mean, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols)
    grid = (triton.cdiv(n_cols, COLS), sums.shape[1])
    on(weight_gradient_kernel, x)[grid](dy, x, mean, rstd, sums, n_rows, n_cols, *strides)
    for terms, gradient in ((sums[0], dweight), (sums[1], dbias)):
        column_sums(terms, gradient)
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
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
