# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op, mean_and_rstd
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

GROUPS = 32
TILE = {"ROWS": 16, "COLS": 64}


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
    """dx = rstd * (g - mean(g) - n * mean(g * n)), where g = dy * weight; program i computes row i.

    The statistics of the row are those of the forward pass, and are kept for weight_gradient_kernel.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g, mean_gn = 0.0, 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_ptr + row * stride_dy, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        mean_g += tl.sum(g, axis=0) / N_COLS
        mean_gn += tl.sum(g * n, axis=0) / N_COLS

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_ptr + row * stride_dy, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    rows_of_group,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums over a group of rows of dy * n and of dy, for COLS columns; program (i, k) has group k.

    A group is rows_of_group neighbouring rows. Its sums are rows 2 k and 2 k + 1 of sums, fp32.
    """
    group = tl.program_id(axis=1)
    first = group * rows_of_group
    stop = tl.minimum(first + rows_of_group, n_rows)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, stop, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < stop) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        n = (x - load(mean_ptr, rows, stop)) * load(rstd_ptr, rows, stop)
        dweight += dy * n
        dbias += dy
    sums_of_group = sums_ptr + group.to(tl.int64) * 2 * n_cols
    store(sums_of_group, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_of_group + n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def finish_kernel(sums_ptr, dweight_ptr, dbias_ptr, groups, n_cols, COLS: tl.constexpr):
    """Add up the sums of the groups, always in the same order, for COLS columns."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((COLS,), dtype=tl.float32)
    dbias = tl.zeros((COLS,), dtype=tl.float32)
    here = sums_ptr
    for group in range(groups):
        dweight += load(here, cols, n_cols)
        dbias += load(here + n_cols, cols, n_cols)
        here += 2 * n_cols
    store(dweight_ptr, cols, n_cols, dweight)
    store(dbias_ptr, cols, n_cols, dbias)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, TILE["ROWS"]))
    strips = triton.cdiv(n_cols, TILE["COLS"])
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, 2, n_cols), device=x.device, dtype=torch.float32)
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
    on(weight_gradient_kernel, x)[(strips, groups)](
        dy,
        x,
        mean,
        rstd,
        sums,
        n_rows,
        n_cols,
        triton.cdiv(n_rows, groups),
        dy.stride(0),
        x.stride(0),
        **TILE,
    )
    on(finish_kernel, x)[(strips,)](sums, dweight, dbias, groups, n_cols, COLS=TILE["COLS"])
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
