# labs/lab4_production_slice/layer_norm_backward.py | right | dx_kernel has several short rows in one 2D tile; dweight and dbias come straight from one program for each strip of columns over all rows, without groups, sums and column_sums
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, on, store
from torch.library import triton_op

TALL, WIDE = 64, 32  # rows and columns of a tile of strip_kernel


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr,
    n_rows, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """R rows for each program. Rows are axis 0 of every tile, so all reductions are along axis 1."""
    rows = (tl.program_id(axis=0).to(tl.int64) * R + tl.arange(0, R))[:, None]
    alive = rows < n_rows
    lanes = tl.arange(0, BLOCK)[None, :]
    dy_rows = dy_ptr + rows * stride_dy
    x_rows = x_ptr + rows * stride_x
    dx_rows = dx_ptr + rows * stride_dx

    mean = tl.zeros((R, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = tl.load(x_rows + cols, mask=alive & (cols < N_COLS), other=0.0).to(tl.float32)
        mean += tl.sum(x, axis=1)[:, None]
    mean = mean / N_COLS

    variance = tl.zeros((R, 1), dtype=tl.float32)
    mean_g = tl.zeros((R, 1), dtype=tl.float32)
    mean_gd = tl.zeros((R, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = alive & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        d = tl.where(inside, x - mean, 0.0)
        g = dy * w
        variance += tl.sum(d * d, axis=1)[:, None]
        mean_g += tl.sum(g, axis=1)[:, None]
        mean_gd += tl.sum(g * d, axis=1)[:, None]
    # rows that do not exist get variance 1, else eps = 0 divides by 0 there
    variance = tl.where(alive, variance / N_COLS, 1.0)
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    mean_g = mean_g / N_COLS
    mean_gn = mean_gd / N_COLS * rstd
    tl.store(mean_ptr + rows, mean, mask=alive)
    tl.store(rstd_ptr + rows, rstd, mask=alive)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = alive & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_rows + cols, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        n = (x - mean) * rstd
        dx = rstd * (dy * w - mean_g - n * mean_gn)
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def strip_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr,
    n_rows, n_cols, stride_dy, stride_x,
    TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """dweight and dbias of WIDE columns: this program sees all rows, so its sums are final."""
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    dbias = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(0, n_rows, TALL):
        rows = (start + tl.arange(0, TALL)[:, None]).to(tl.int64)
        alive = rows < n_rows
        inside = alive & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=alive, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=alive, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(dweight_ptr, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_ptr, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)

    block = block_of(n_cols)
    rows_each = max(1, min(8, 2048 // block))  # powers of two all of them
    on(dx_kernel, x)[(triton.cdiv(n_rows, rows_each),)](
        dy, x, weight, dx, mean, rstd,
        n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block, R=rows_each,
    )  # fmt: skip
    on(strip_kernel, x)[(triton.cdiv(n_cols, WIDE),)](
        dy, x, mean, rstd, dweight, dbias,
        n_rows, n_cols, dy.stride(0), x.stride(0),
        TALL=TALL, WIDE=WIDE,
    )  # fmt: skip
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
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
