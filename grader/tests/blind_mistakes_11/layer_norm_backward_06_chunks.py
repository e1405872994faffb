# labs/lab4_production_slice/layer_norm_backward.py | error | where there is only one group, the host code sums and converts the tensors itself: `dweight.copy_(sums[0].sum(0))`, and the same for dbias; neither sum nor copy_ of a tensor is permitted outside a kernel (POLICY): column_sums must do it in every case. Shows in every call, as the file is checked before it runs.
"""The gradients of LayerNorm, with fewer launches for few rows."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # at most
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def centred(x_row, cols, mean, N_COLS: tl.constexpr):
    """x - mean, 0 past the end."""
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
    """dx = rstd * (g - mean(g) - n * mean(g * n)) for row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0) / N_COLS
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = centred(x_row, cols, mean, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = centred(x_row, cols, mean, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dx = rstd * (g - sum_g / N_COLS - n * (sum_gd * rstd / N_COLS))
        store(dx_ptr + row * stride_dx, cols, N_COLS, dx)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n and of dy over the rows of a group."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    tile = group
    while tile * ROWS < n_rows:
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
        tile += groups
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients for x, weight and bias, in this order."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    if groups == 1:
        dweight.copy_(sums[0].sum(0))
        dbias.copy_(sums[1].sum(0))
    else:
        column_sums(sums[0], dweight)
        column_sums(sums[1], dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As an operator."""
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
        """Return dx, dweight and dbias."""
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable LayerNorm."""
    return LayerNorm.apply(x, weight, bias, eps)
