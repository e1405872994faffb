# labs/lab4_production_slice/layer_norm_backward.py | corner | In the helper centred_and_g `d = load(row_x, cols, N_COLS) - mean` is -mean and not 0 in the lanes past the end of the row, so `squares`, and with it rstd and all of dx and dweight, is too large where the row is no whole number of blocks; it should be `tl.where(cols < N_COLS, ... - mean, 0.0)`.
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
def row_mean(row_x, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of a row of any length."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(row_x, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    return total / N_COLS


@triton.jit
def centred_and_g(row_x, row_dy, weight_ptr, cols, mean, N_COLS: tl.constexpr):
    """x - mean and dy * weight at some columns of a row."""
    d = load(row_x, cols, N_COLS) - mean
    g = load(row_dy, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    return d, g


@triton.jit
def load_tile(ptr, rows, cols, stride, inside):
    """A tile of a matrix in fp32, 0 outside."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


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
    """Row i of dx; mean and rstd of the row go to two vectors."""
    i = tl.program_id(axis=0).to(tl.int64)
    row_dy = dy_ptr + i * stride_dy
    row_x = x_ptr + i * stride_x
    row_dx = dx_ptr + i * stride_dx

    mean = row_mean(row_x, N_COLS, BLOCK)

    squares, sum_g, sum_gd = 0.0, 0.0, 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d, g = centred_and_g(row_x, row_dy, weight_ptr, cols, mean, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + i, mean)
    tl.store(rstd_ptr + i, rstd)

    mean_g = sum_g / N_COLS
    mean_gn = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d, g = centred_and_g(row_x, row_dy, weight_ptr, cols, mean, N_COLS)
        store(row_dx, cols, N_COLS, rstd * (g - mean_g - d * rstd * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        dy = load_tile(dy_ptr, rows, cols[None, :], stride_dy, inside)
        x = load_tile(x_ptr, rows, cols[None, :], stride_x, inside)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def launch_dx(dy, x, weight, dx, mean, rstd, eps):
    """One program for each row."""
    n_rows, n_cols = x.shape
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip


def launch_weight_gradients(dy, x, mean, rstd, sums):
    """One program for each block of columns of each group."""
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_cols, COLS), sums.shape[1])
    on(weight_gradient_kernel, x)[grid](dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))


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
    launch_dx(dy, x, weight, dx, mean, rstd, eps)
    launch_weight_gradients(dy, x, mean, rstd, sums)
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        grads = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return grads[0], grads[1], grads[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
