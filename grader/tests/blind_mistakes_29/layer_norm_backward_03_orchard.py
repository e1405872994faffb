# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def upstream(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """The gradient that reaches the normalised row, 0 past its end."""
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.jit
def centred(x_row, mean, cols, N_COLS: tl.constexpr):
    """x - mean, 0 past the end of the row."""
    return tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)


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
    """dx = rstd * ((g - mean(g)) - n * mean(g * n)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    lanes = tl.arange(0, BLOCK)

    # Both plain sums in one sweep; what needs the mean of x comes after it.
    sum_x = 0.0
    sum_g = 0.0
    for start in range(0, N_COLS, BLOCK):
        sum_x += tl.sum(load(x_row, start + lanes, N_COLS), axis=0)
        sum_g += tl.sum(upstream(dy_row, weight_ptr, start + lanes, N_COLS), axis=0)
    mean = sum_x / N_COLS
    mean_g = sum_g / N_COLS

    squares = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        d = centred(x_row, mean, start + lanes, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_gd += tl.sum(d * upstream(dy_row, weight_ptr, start + lanes, N_COLS), axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_gn = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        n = centred(x_row, mean, start + lanes, N_COLS) * rstd
        level = upstream(dy_row, weight_ptr, start + lanes, N_COLS) - mean_g
        store(dx_ptr + row * stride_dx, start + lanes, N_COLS, rstd * (level - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweight_ptr, dbias_ptr, n_rows, n_cols, stride_dy, stride_x
):
    """Row k of two (groups, n_cols) fp32 matrices: the sums of dy * n and of dy over group k.

    The tile stands on its side: columns run down, rows across, so a reduction is along axis 1.
    """
    group = tl.program_id(axis=1)
    step = tl.num_programs(axis=1) * ROWS
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    down = cols[:, None]
    dweight = tl.zeros((COLS, ROWS), dtype=tl.float32)
    dbias = tl.zeros((COLS, ROWS), dtype=tl.float32)
    first = group * ROWS
    while first < n_rows:
        across = (first + tl.arange(0, ROWS))[None, :].to(tl.int64)
        known = across < n_rows
        inside = known & (down < n_cols)
        mean = tl.load(mean_ptr + across, mask=known, other=0.0)
        rstd = tl.load(rstd_ptr + across, mask=known, other=0.0)
        dy = tl.load(dy_ptr + across * stride_dy + down, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + across * stride_x + down, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
        first += step
    store(dweight_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=1))
    store(dbias_ptr + group * n_cols, cols, n_cols, tl.sum(dbias, axis=1))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = x.new_empty((n_rows, n_cols)) if dx is None else dx
    dweight = weight.new_empty((n_cols,)) if dweight is None else dweight
    dbias = weight.new_empty((n_cols,)) if dbias is None else dbias

    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
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

    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    for_dweight = x.new_empty((groups, n_cols), dtype=torch.float32)
    for_dbias = x.new_empty((groups, n_cols), dtype=torch.float32)
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, for_dweight, for_dbias, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    for terms, result in ((for_dweight, dweight), (for_dbias, dbias)):
        column_sums(terms, result)
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
        return (*backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
