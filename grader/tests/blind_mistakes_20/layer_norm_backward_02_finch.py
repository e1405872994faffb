# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) weight_gradient_kernel: a group has the rows first to last - 1, but the mask of a tile is `rows < n_rows` without `rows < last`, so where rows_per_group is no multiple of ROWS (16) the tile's excess rows are added to dweight and dbias by two groups. (2) LayerNorm.backward returns None for everything when x needs no gradient (`if not ctx.needs_input_grad[0]`), so weight and bias alone get no gradient; the early return should not be there.
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
def row_mean(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of one row."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    return total / N_COLS


@triton.jit
def d_and_g(x_row, dy_row, weight_ptr, mean, cols, N_COLS: tl.constexpr):
    """x - mean and dy * weight at some columns, both 0 past the end of the row."""
    d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
    return d, load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


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
    """dx of one row; its mean and rstd go to the two vectors."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    mean = row_mean(x_row, N_COLS, BLOCK)
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        d, g = d_and_g(x_row, dy_row, weight_ptr, mean, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d, g = d_and_g(x_row, dy_row, weight_ptr, mean, cols, N_COLS)
        dx = rstd * (g - (sum_g + d * rstd * (rstd * sum_gd)) / N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, dx)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, rows_per_group, stride_dy, stride_x
):
    """dweight and dbias of rows_per_group neighbouring rows, for COLS columns."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = group * rows_per_group
    last = first + rows_per_group
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        real = rows < n_rows
        inside = real & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        n = (x - tl.load(mean_ptr + rows, mask=real, other=0.0)) * tl.load(rstd_ptr + rows, mask=real, other=0.0)
        dweight += dy * n
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


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
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    share = triton.cdiv(n_rows, groups)  # the same number of rows for each group, the last may have fewer
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, share, dy.stride(0), x.stride(0)
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        if not ctx.needs_input_grad[0]:
            return None, None, None, None  # nothing is passed on from here
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
