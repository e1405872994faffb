# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | layer_norm_backward passes `rstd, mean` to parameter_kernel, whose arguments are mean_ptr, rstd_ptr: it computes (x - rstd) * mean. It should pass `mean, rstd`. dweight is wrong, dx and dbias are right.
"""Gradients of LayerNorm."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
    x_ptr,
    dy_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    stride_x,
    stride_dy,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of row i by program i. A row of one block is loaded once and stays in registers."""
    i = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + i * stride_x
    dy_row = dy_ptr + i * stride_dy
    dx_row = dx_ptr + i * stride_dx
    eps32 = tl.cast(eps, tl.float32)
    if N_COLS <= BLOCK:
        cols = tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(cols < N_COLS, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N_COLS + eps32)
        n = d * rstd
        mean_g = tl.sum(g, axis=0) / N_COLS
        mean_gn = tl.sum(g * n, axis=0) / N_COLS
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))
    else:
        total = 0.0
        for start in range(0, N_COLS, BLOCK):
            total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
        mean = total / N_COLS
        squares = 0.0
        sum_g = 0.0
        sum_gd = 0.0
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            squares += tl.sum(d * d, axis=0)
            sum_g += tl.sum(g, axis=0)
            sum_gd += tl.sum(g * d, axis=0)
        rstd = tl.rsqrt(squares / N_COLS + eps32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            n = (load(x_row, cols, N_COLS) - mean) * rstd
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            store(dx_row, cols, N_COLS, rstd * (g - sum_g / N_COLS - n * (sum_gd * rstd / N_COLS)))
    tl.store(mean_ptr + i, mean)
    tl.store(rstd_ptr + i, rstd)


@triton.jit
def parameter_kernel(x_ptr, dy_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_x, stride_dy):
    """Sums of dy * n and of dy over every groups-th tile of rows."""
    k = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(k * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += (x - mean) * rstd * dy
        dbias += dy
    store(sums_ptr + k * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + k) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Return dx, dweight, dbias. Each is written to the tensor of its name, where one is given."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(row_kernel, x)[(n_rows,)](
        x,
        dy,
        weight,
        dx,
        mean,
        rstd,
        x.stride(0),
        dy.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(parameter_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        x, dy, rstd, mean, sums, n_rows, n_cols, x.stride(0), dy.stride(0)
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
