# labs/lab4_production_slice/layer_norm_backward.py | contract | layer_norm_backward, the allocation of dweight and dbias where none is given: they are always fp32 (x.new_empty((n_cols,), dtype=torch.float32)). The numbers are right, but README "Without them the function allocates new contiguous tensors of the dtype of its inputs" is broken. Shows only for fp16 and bf16 without dweight= and dbias=. It should be torch.empty_like(weight)
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

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
    """dx of one row, and its mean and rstd for the other kernel.

    With d = x - mean, the sum of g * n is rstd times that of g * d, so one sweep gives all three sums.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    dx_row = dx_ptr + row * stride_dx
    block = tl.arange(0, BLOCK)

    total = 0.0
    for at in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, at + block, N_COLS), axis=0)
    mean = total / N_COLS

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for at in range(0, N_COLS, BLOCK):
        cols = at + block
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(weight_ptr, cols, N_COLS) * load(dy_row, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    sum_gn = rstd * sum_gd
    for at in range(0, N_COLS, BLOCK):
        cols = at + block
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(weight_ptr, cols, N_COLS) * load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - (sum_g + n * sum_gn) / N_COLS))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; the pointers move on by groups * ROWS rows."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    rows = group * ROWS + tl.arange(0, ROWS)[:, None]
    step = groups * ROWS
    dy_tile = dy_ptr + rows.to(tl.int64) * stride_dy + cols
    x_tile = x_ptr + rows.to(tl.int64) * stride_x + cols
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in range(group * ROWS, n_rows, step):
        inside = (rows < n_rows) & (cols < n_cols)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dy = tl.load(dy_tile, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_tile, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x - mean) * rstd
        dbias += dy
        rows += step
        dy_tile += step.to(tl.int64) * stride_dy
        x_tile += step.to(tl.int64) * stride_x
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = x.new_empty((n_cols,), dtype=torch.float32)
    if dbias is None:
        dbias = x.new_empty((n_cols,), dtype=torch.float32)
    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)
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
    grid = (triton.cdiv(n_cols, COLS), groups)
    on(weight_gradient_kernel, x)[grid](
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
