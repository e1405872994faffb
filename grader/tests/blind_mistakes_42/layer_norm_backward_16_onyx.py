# labs/lab4_production_slice/layer_norm_backward.py | error | In `weight_gradient_kernel`, `dweight = tl.zeros((WIDE,), ...)` and `dbias` likewise are vectors, to which the loop adds tiles (DEEP, WIDE): "Loop-carried variable dweight has initial type ... but is re-assigned to ...". They should be `tl.zeros((DEEP, WIDE), ...)`. It does not compile for a GPU in any case (Triton's interpreter broadcasts, and runs it).
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PARTS = 32  # of the rows at most
DEEP, WIDE = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def deviation(x_row, cols, mean, n_cols):
    """Return x - mean at these columns, and 0 past the end of the row."""
    return tl.where(cols < n_cols, load(x_row, cols, n_cols) - mean, 0.0)


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
    """dx = rstd * (g - (sum(g) + n * sum(g * n)) / N_COLS), where g = dy * weight; program i computes row i.

    Mean and rstd of the row go to element i of two fp32 vectors.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    mean = 0.0
    for at in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, at + lanes, N_COLS), axis=0) / N_COLS

    variance, mean_g, mean_gd = 0.0, 0.0, 0.0
    for at in range(0, N_COLS, BLOCK):
        cols = at + lanes
        d = deviation(x_row, cols, mean, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        variance += tl.sum(d * d, axis=0) / N_COLS
        mean_g += tl.sum(g, axis=0) / N_COLS
        mean_gd += tl.sum(g * d, axis=0) / N_COLS

    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for at in range(0, N_COLS, BLOCK):
        cols = at + lanes
        n = deviation(x_row, cols, mean, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * (rstd * mean_gd)))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n and of dy; program (i, k) has WIDE columns and part k of the rows, DEEP at a time.

    The sums of part k go to row k of the two matrices in sums, (2, parts, n_cols) fp32.
    """
    part = tl.program_id(axis=1)
    parts = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    dweight = tl.zeros((WIDE,), dtype=tl.float32)
    dbias = tl.zeros((WIDE,), dtype=tl.float32)
    for first in range(part * DEEP, n_rows, parts * DEEP):
        rows = first + tl.arange(0, DEEP)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(sums_ptr + part * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (parts + part) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    parts = min(PARTS, triton.cdiv(n_rows, DEEP))
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty_like(mean)
    sums = x.new_empty((2, parts, n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, WIDE), parts)](
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
