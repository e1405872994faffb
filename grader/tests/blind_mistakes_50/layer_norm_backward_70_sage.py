# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In `dx_kernel`, `of_d = rstd * rstd * (sum_gd / N_COLS)` lacks a factor: the coefficient of d = x - mean must be `rstd * rstd * rstd * (sum_gd / N_COLS)`, because n * mean(g * n) * rstd has rstd three times. dx is wrong in all cases whose rstd is not 1 (dweight and dbias are right).
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

CHUNKS = 64  # of neighbouring rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def row_sums(dy_row, x_row, weight_ptr, mean, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the sums of d * d, g and g * d over a row, where d = x - mean and g = dy * weight."""
    lanes = tl.arange(0, BLOCK)
    sum_dd = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        sum_dd += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    return sum_dd, sum_g, sum_gd


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
    """dx of row i as a linear function of g and d, whose three coefficients belong to the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + lanes, N_COLS), axis=0)
    mean = total / N_COLS

    sum_dd, sum_g, sum_gd = row_sums(dy_row, x_row, weight_ptr, mean, N_COLS, BLOCK)
    rstd = tl.rsqrt(sum_dd / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    of_d = rstd * rstd * (sum_gd / N_COLS)
    constant = rstd * (sum_g / N_COLS)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = load(x_row, cols, N_COLS) - mean
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * g - of_d * d - constant)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, per_chunk, stride_dy, stride_x
):
    """Sums of dy * n and of dy over rows k * per_chunk and on; program (i, k) has COLS columns."""
    chunk = tl.program_id(axis=1)
    chunks = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = chunk * per_chunk
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, tl.minimum(first + per_chunk, n_rows), ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        exists = rows < n_rows
        inside = exists[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0)
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        dy = dy.to(tl.float32)
        dweight += dy * ((x.to(tl.float32) - mean[:, None]) * rstd[:, None])
        dbias += dy
    store(sums_ptr + chunk * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (chunks + chunk) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    # A chunk is a whole number of tiles of 16 rows.
    tiles = triton.cdiv(n_rows, 16)
    per_chunk = 16 * triton.cdiv(tiles, CHUNKS)
    chunks = triton.cdiv(n_rows, per_chunk)
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, chunks, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), chunks)](
        dy, x, mean, rstd, sums, n_rows, n_cols, per_chunk, dy.stride(0), x.stride(0)
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
